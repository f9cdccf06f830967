"""Estimates pi: of random points in a square, pi / 4 fall into the quarter circle within it."""

from random import Random


def count_inside(seed: int, points: int) -> int:
    """How many of so many random points are within the quarter circle. Same seed, same count."""
    draw = Random(seed).random
    return sum(draw() ** 2 + draw() ** 2 <= 1.0 for _ in range(points))


def estimate(inside: int, points: int) -> float:
    """Pi, from all counts together."""
    return 4.0 * inside / points

"""Penstock runs campaigns of tasks on your own machines, on a durable log."""

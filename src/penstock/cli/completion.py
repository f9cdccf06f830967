"""`penstock completion`: the script that a shell needs to complete our commands."""

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  penstock completion bash > ~/.local/share/bash-completion/completions/penstock
    zsh:   penstock completion zsh > "${fpath[1]}/_penstock"
    fish:  penstock completion fish > ~/.config/fish/completions/penstock.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    root = ctx.find_root().command
    click.echo(kind(root, {}, "penstock", "_PENSTOCK_COMPLETE").source())

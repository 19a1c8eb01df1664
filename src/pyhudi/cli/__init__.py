"""Command line: `pyhudi COMMAND TABLE [options]`. One module per group of commands; `output` prints results."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `pyhudi` command."""
    try:
        import rich  # noqa: F401 - checked for installation only
        import typer  # noqa: F401
    except ImportError:
        raise SystemExit('the command line needs typer and rich: pip install "pyhudi[cli]"') from None
    from pyhudi.cli.app import run

    run()

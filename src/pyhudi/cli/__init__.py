"""The command line: `pyhudi COMMAND TABLE [options]`.  One module for each group of commands; printing stands apart in
`output`.
"""

from __future__ import annotations


def main() -> None:
    """Entry point of the `pyhudi` command."""
    try:
        import rich  # noqa: F401 - only asked whether it is there
        import typer  # noqa: F401
    except ImportError:
        raise SystemExit('the command line needs typer and rich: pip install "pyhudi[cli]"') from None
    from pyhudi.cli.app import run

    run()

"""Commit callbacks: messages after a commit, by HTTP, Kafka or a function of Python.

commit_message     the message, and its JSON as Hudi sends it
receivers          where messages go: settings, checks, and one delivery
notices            files that show which messages are not delivered yet
deliver_messages   delivery after a commit, with retries, and of messages that earlier writes left
"""

from __future__ import annotations

from pyhudi.features import exports

_EXPORTS = {
    "CommitMessage": "commit_message",
    "check_settings": "receivers",
    "delete_notice": "notices",
    "deliver": "deliver_messages",
    "register_commit_callback": "receivers",
    "store_notice": "notices",
}
__getattr__ = exports(__name__, _EXPORTS)

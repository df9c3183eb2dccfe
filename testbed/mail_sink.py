"""A real SMTP server that keeps every mail as a file: `python3 -m testbed.mail_sink PORT DIR`.

While DIR/refuse exists, its text (`451 try later`) is the answer to every recipient.
"""

from __future__ import annotations

import asyncio
import email
import email.policy
import os
import sys
import time
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from aiosmtpd.controller import UnthreadedController


@dataclass(frozen=True)
class Mail:
    """A mail that the sink has accepted."""

    to: str
    subject: str
    body: str
    message: EmailMessage


def read_mails(folder: Path) -> list[Mail]:
    """Every accepted mail, oldest first."""
    mails: list[Mail] = []
    for path in sorted(folder.glob("*.eml")):
        message = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        part = message.get_body(("plain",))
        mails.append(
            Mail(
                to=str(message["X-Sink-Recipients"]),
                subject=str(message["Subject"]),
                body=part.get_content() if part else "",
                message=message,
            )
        )
    return mails


class _Sink:
    """aiosmtpd's handler: 250 once the mail is on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        refusal = self._folder / "refuse"
        if refusal.exists():
            return refusal.read_text(encoding="ascii").strip()
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        name = f"{time.time_ns():020}-{os.getpid()}"
        part = self._folder / f"{name}.part"
        recipients = ", ".join(envelope.rcpt_tos)
        part.write_bytes(
            f"X-Sink-Recipients: {recipients}\r\n".encode() + envelope.original_content
        )
        part.rename(self._folder / f"{name}.eml")
        return "250 Message accepted"


def main(port: int, folder: Path) -> None:
    """Serve on loopback until killed."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    controller = UnthreadedController(_Sink(folder), hostname="127.0.0.1", port=port, loop=loop)
    controller.begin()  # type: ignore[no-untyped-call]
    loop.run_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))

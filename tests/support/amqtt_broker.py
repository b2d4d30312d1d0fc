"""amqtt as a program: a broker for everybody, on the port that is its argument. For tests alone."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import warnings


async def main(port: int) -> None:
    """Serve until SIGTERM."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from amqtt.broker import Broker

    broker = Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
    )
    await broker.start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))

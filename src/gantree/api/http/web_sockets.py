"""uvicorn's WebSockets, as this daemon has them. What is sent over them is in `api.streams.exec_relay`."""

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from gantree.api.http.connections import STATE, Connection


class WebSockets(WebSocketsSansIOProtocol):
    """Refuses in silence: uvicorn takes an answer in place of a handshake for an application that broke off."""

    async def send(self, message: Any) -> None:
        """Send one message of the application."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, and counts no more."""
        connection: Connection = self.app_state[STATE]
        connection.release()
        super().connection_lost(exc)

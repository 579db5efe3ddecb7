"""The same request again, for BentoML's application: what the lane does not answer by itself.

The bytes as they came go through uvicorn's parser, and the application finds in its scope what has become of the
handler: its outcome (endpoint.py), or that its time is up (deadline.py).
"""

from plimsoll import deadline, records
from plimsoll import page as pages
from plimsoll.lane import context, endpoint
from plimsoll.lane.run import counted


class Again:
    """The part of protocol.LaneProtocol that this page is about."""

    def _give_back(self, run, outcome):
        counted(run, False)
        run.call.flags |= pages.RETURNED
        self._again(run, {endpoint.OUTCOME: outcome, records.OPEN: run.call})

    def time_is_up(self, run):
        run.late = True
        run.call.cut = True
        run.call.flags |= pages.RETURNED
        if run.task is not None:
            run.task.cancel()
        self._again(run, {deadline.LATE: run, records.OPEN: run.call})

    def _again(self, run, more):
        self._run = None
        if self._gone or self.transport.is_closing():
            self._spawn(self._for_nobody(run, more))
            self._go_on()
            return
        app = self.app

        async def with_more(scope, receive, send):
            scope.update(more)
            await app(scope, receive, send)

        self._theirs = True
        self.app = with_more
        self._unset_keepalive_if_required()
        try:
            super().data_received(run.raw)
        finally:
            self.app = app
        if self._ending and self.cycle is not None:
            self.cycle.keep_alive = False

    async def _for_nobody(self, run, more):
        """The client has gone; what BentoML logs, counts and does behind a reply is done all the same."""
        body = [{"type": "http.request", "body": run.body, "more_body": False}]

        async def receive():
            return body.pop() if body else {"type": "http.disconnect"}

        async def send(_):
            pass

        await self.app({**context.scope_of(run), **more}, receive, send)

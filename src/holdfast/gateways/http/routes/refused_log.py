"""The paths of the log where it is not served: they say why."""

from litestar import HttpMethod, route
from litestar.handlers import HTTPRouteHandler

from holdfast.gateways.http.errors import LogNotServedError
from holdfast.gateways.http.routes.log_dependencies import LOG_PATH


def make_handler(reason: str) -> HTTPRouteHandler:
    """A handler of every path of the log that refuses with the reason."""

    @route(
        f"{LOG_PATH}/{{path:path}}",
        http_method=[HttpMethod.GET, HttpMethod.POST, HttpMethod.PATCH, HttpMethod.DELETE],
        include_in_schema=False,
    )
    async def refuse() -> None:
        raise LogNotServedError(reason)

    return refuse

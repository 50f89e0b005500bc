"""Destructive calls over HTTP need a token where the setting says so."""

import asyncio

from tests.support.http_gateway import running_http_gateway

from holdfast.client.http_client import HttpClient

ORDERS = "/api/pipelines/orders"


async def test_a_pipeline_is_deleted_with_the_token_for_it_alone() -> None:
    async with running_http_gateway(confirmations="pipeline.delete") as served:
        client = served.client
        assert (await client.post("/api/pipelines", json={"name": "orders"})).status_code == 201
        refused = await client.delete(ORDERS)
        assert (refused.status_code, refused.json()["type"]) == (428, "urn:holdfast:problem:unconfirmed")
        asked = {"action": "pipeline.delete", "resource": "orders"}
        made = await client.post("/v1/confirmations", json=asked)
        assert made.status_code == 201
        token = made.json()["confirmationToken"]
        assert (await client.delete(ORDERS, params={"confirmation_token": token})).status_code == 428
        confirmed = {"force": "true", "confirmation_token": token}
        assert (await client.delete(ORDERS, params=confirmed)).status_code == 204
        assert (await client.get(ORDERS)).status_code == 404
        assert (await client.post("/api/pipelines", json={"name": "orders"})).status_code == 201
        command = HttpClient(f"http://127.0.0.1:{served.port}")
        await asyncio.to_thread(command.delete_confirmed, ORDERS, "pipeline.delete", "orders")
        assert (await client.get(ORDERS)).status_code == 404
        assert (await client.post("/v1/confirmations", json={"action": "no", "resource": "x"})).status_code == 422

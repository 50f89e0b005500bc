"""Agents, partitions with leader and epoch, leases and transfers."""

from dataclasses import asdict

from holdfast.agent.administration import LeaseStatus
from holdfast.gateways.grpc.access import CallAccess
from holdfast.gateways.http.errors import UnknownAgentError
from holdfast.gateways.log_access.backend import LogBackend
from holdfast.gateways.log_access.pages import page_of
from holdfast.log.topics import Topic, UnknownTopicError
from holdfast.v1 import cluster_service_pb2 as pb


class ClusterService:
    """`holdfast.v1.ClusterService`."""

    def __init__(self, backend: LogBackend) -> None:
        self._cluster, self._administration = backend.cluster, backend.administration

    async def list_agents(self, request: pb.ListAgentsRequest, access: CallAccess) -> pb.ListAgentsResponse:
        agents = await self._administration.agents()
        return pb.ListAgentsResponse(agents=[pb.Agent(**asdict(each)) for each in agents])

    async def get_agent(self, request: pb.GetAgentRequest, access: CallAccess) -> pb.GetAgentResponse:
        for each in await self._administration.agents():
            if each.id == request.id:
                return pb.GetAgentResponse(agent=pb.Agent(**asdict(each)))
        raise UnknownAgentError(request.id)

    async def list_partitions(self, request: pb.ListPartitionsRequest, access: CallAccess) -> pb.ListPartitionsResponse:
        topics = self._cluster.topics
        if request.topic:
            found = self._cluster.topic(request.topic)
            if found is None:
                raise UnknownTopicError(request.topic)
            topics = [found]
        places = [(topic, number) for topic in topics for number in range(topic.partitions)]
        page = page_of(places, lambda place: f"{place[0].name}/{place[1]:010d}", request)
        return pb.ListPartitionsResponse(
            partitions=[self._partition(*place) for place in page.items], next_page_token=page.next_page_token
        )

    async def list_leases(self, request: pb.ListLeasesRequest, access: CallAccess) -> pb.ListLeasesResponse:
        leases = [each for each in await self._administration.leases() if each.resource.startswith(request.prefix)]
        page = page_of(leases, lambda lease: lease.resource, request)
        return pb.ListLeasesResponse(leases=map(_lease, page.items), next_page_token=page.next_page_token)

    async def list_transfers(self, request: pb.ListTransfersRequest, access: CallAccess) -> pb.ListTransfersResponse:
        found = await self._administration.leases()
        return pb.ListTransfersResponse(leases=[_lease(each) for each in found if each.transfer])

    def _partition(self, topic: Topic, number: int) -> pb.PartitionLeader:
        held = self._cluster.leader(topic.name, number)
        offline = None if held is None else self._cluster.offline(held)
        return pb.PartitionLeader(
            topic=topic.name,
            partition=number,
            leader="" if held is None else held.holder,
            epoch=0 if held is None else held.epoch,
            offline="" if offline is None else offline.reason,
        )


def _lease(lease: LeaseStatus) -> pb.LeaseStatus:
    return pb.LeaseStatus(
        resource=lease.resource,
        holder=lease.holder,
        epoch=lease.epoch,
        planned=lease.planned or "",
        transfer=lease.transfer,
    )

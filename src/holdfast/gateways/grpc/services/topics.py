"""Topics and their partitions."""

from holdfast.gateways.grpc.access import CallAccess
from holdfast.gateways.grpc.entries import SETTINGS_MAX, check_count
from holdfast.gateways.log_access.pages import page_of
from holdfast.gateways.log_access.topic_administration import SERVER_DEFAULT, TopicAdministration
from holdfast.log.topics import Topic
from holdfast.security.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.v1 import topic_service_pb2 as pb
from holdfast.vocabulary.errors import InvalidError


class TopicService:
    """`holdfast.v1.TopicService`."""

    def __init__(self, topics: TopicAdministration) -> None:
        self._topics = topics

    async def create_topic(self, request: pb.CreateTopicRequest, access: CallAccess) -> pb.CreateTopicResponse:
        access.require_cluster_or(Operation.CREATE, ResourceType.TOPIC, request.name)
        check_count("config", request.config, SETTINGS_MAX)
        topic = await self._topics.create(
            request.name,
            partitions=request.partitions if request.HasField("partitions") else SERVER_DEFAULT,
            replication_factor=request.replication_factor if request.HasField("replication_factor") else SERVER_DEFAULT,
            config=request.config,
        )
        return pb.CreateTopicResponse(topic=_summary(topic))

    async def get_topic(self, request: pb.GetTopicRequest, access: CallAccess) -> pb.GetTopicResponse:
        return pb.GetTopicResponse(topic=await self._described(request.name))

    async def list_topics(self, request: pb.ListTopicsRequest, access: CallAccess) -> pb.ListTopicsResponse:
        shown = [
            topic
            for topic in await self._topics.list()
            if access.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
        page = page_of(shown, lambda topic: topic.name, request)
        return pb.ListTopicsResponse(topics=map(_summary, page.items), next_page_token=page.next_page_token)

    async def alter_topic(self, request: pb.AlterTopicRequest, access: CallAccess) -> pb.AlterTopicResponse:
        check_count("set_config", request.set_config, SETTINGS_MAX)
        check_count("reset_config", request.reset_config, SETTINGS_MAX)
        if request.HasField("partitions"):
            access.require(Operation.ALTER, ResourceType.TOPIC, request.name)
        if request.HasField("replication_factor"):
            access.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        if request.set_config or request.reset_config:
            access.require(Operation.ALTER_CONFIGS, ResourceType.TOPIC, request.name)
        if twice := sorted(set(request.set_config) & set(request.reset_config)):
            raise InvalidError("reset_config", twice, "settings that set_config does not have")
        await self._topics.change(
            request.name,
            partitions=request.partitions if request.HasField("partitions") else None,
            replication_factor=request.replication_factor if request.HasField("replication_factor") else None,
            config={**request.set_config, **dict.fromkeys(request.reset_config)},
        )
        return pb.AlterTopicResponse(topic=await self._described(request.name))

    async def delete_topic(self, request: pb.DeleteTopicRequest, access: CallAccess) -> pb.DeleteTopicResponse:
        await self._topics.delete(request.name)
        return pb.DeleteTopicResponse()

    async def describe_partitions(
        self, request: pb.DescribePartitionsRequest, access: CallAccess
    ) -> pb.DescribePartitionsResponse:
        found = await self._topics.partitions(request.topic)
        return pb.DescribePartitionsResponse(
            partitions=[
                pb.Partition(
                    partition=row.partition,
                    leader=row.leader,
                    leader_address=row.leader_address or "",
                    epoch=row.epoch,
                    replicas=row.replicas,
                    in_sync=row.in_sync,
                    start_offset=row.earliest,
                    end_offset=row.latest,
                    offline=offline,
                )
                for row, offline in found
            ]
        )

    async def _described(self, name: str) -> pb.Topic:
        topic = _summary(await self._topics.get(name))
        for setting in await self._topics.settings(name):
            topic.config[setting.name] = setting.value or ""
            if setting.source == "topic":
                topic.overrides.append(setting.name)
        return topic


def _summary(topic: Topic) -> pb.Topic:
    config = topic.config
    return pb.Topic(
        name=topic.name,
        id=topic.id,
        partitions=topic.partitions,
        replication_factor=config.replication_factor,
        durability=config.durability,
        cleanup_policy=config.cleanup_policy,
    )

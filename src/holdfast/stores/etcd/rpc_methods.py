"""The methods of etcd's API that Holdfast calls: path, request, response. The messages are generated from proto/etcd.proto."""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from holdfast.stores.etcd import etcd_pb2 as pb

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


@dataclass(frozen=True, slots=True)
class RpcMethod(Generic[Q, A]):
    """One remote method."""

    path: str
    request: type[Q]
    response: type[A]


RANGE: Final = RpcMethod("/etcdserverpb.KV/Range", pb.RangeRequest, pb.RangeResponse)
TXN: Final = RpcMethod("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse)
COMPACT: Final = RpcMethod("/etcdserverpb.KV/Compact", pb.CompactionRequest, pb.CompactionResponse)
WATCH: Final = RpcMethod("/etcdserverpb.Watch/Watch", pb.WatchRequest, pb.WatchResponse)
LEASE_GRANT: Final = RpcMethod("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
LEASE_REVOKE: Final = RpcMethod("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
LEASE_KEEP_ALIVE: Final = RpcMethod(
    "/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse
)
LEASE_TIME_TO_LIVE: Final = RpcMethod(
    "/etcdserverpb.Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest, pb.LeaseTimeToLiveResponse
)
MEMBER_LIST: Final = RpcMethod("/etcdserverpb.Cluster/MemberList", pb.MemberListRequest, pb.MemberListResponse)
MEMBER_ADD: Final = RpcMethod("/etcdserverpb.Cluster/MemberAdd", pb.MemberAddRequest, pb.MemberAddResponse)
MEMBER_REMOVE: Final = RpcMethod("/etcdserverpb.Cluster/MemberRemove", pb.MemberRemoveRequest, pb.MemberRemoveResponse)
MEMBER_UPDATE: Final = RpcMethod("/etcdserverpb.Cluster/MemberUpdate", pb.MemberUpdateRequest, pb.MemberUpdateResponse)
MEMBER_PROMOTE: Final = RpcMethod(
    "/etcdserverpb.Cluster/MemberPromote", pb.MemberPromoteRequest, pb.MemberPromoteResponse
)
ALARM: Final = RpcMethod("/etcdserverpb.Maintenance/Alarm", pb.AlarmRequest, pb.AlarmResponse)
DEFRAGMENT: Final = RpcMethod("/etcdserverpb.Maintenance/Defragment", pb.DefragmentRequest, pb.DefragmentResponse)
SNAPSHOT: Final = RpcMethod("/etcdserverpb.Maintenance/Snapshot", pb.SnapshotRequest, pb.SnapshotResponse)
STATUS: Final = RpcMethod("/etcdserverpb.Maintenance/Status", pb.StatusRequest, pb.StatusResponse)
AUTHENTICATE: Final = RpcMethod("/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse)

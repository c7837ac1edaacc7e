// Package exchange copies objects between a cluster and its broker, in both
// directions: the objects of this cluster go to the broker, into every clusterset that
// the cluster is in, and the objects of other clusters come here.
//
// Which kinds of objects are exchanged, and what depends on the kind, is in one table:
// see Kinds. The rights of members on the broker, its admission policies and its quotas
// are derived from the same table, by package broker.
//
// What is written is decided by Plan, which is a pure function of what both sides hold.
// An Exchange watches both sides, calls Plan and carries out what it returns. The package
// does not know who runs an Exchange, or when: package agent does.
//
// The files, in the order in which to read them:
//
//   - The table: kinds.go, services.go (pages of exported Services), table.go, names.go, and cel.go
//     for the admission policies.
//   - What members store on the broker: slots.go (under which names) and reserve.go (empty
//     objects).
//   - Trust: members.go finds which clusters are in which clustersets, and judge.go which of their
//     objects count, with identity.go, statement.go (what is signed), memory.go (what a cluster
//     remembers) and memo.go (what was verified before). sign.go signs the objects of this cluster.
//   - Changes of membership: renewal.go follows the grant of this cluster; revoke.go, removal.go
//     and leave.go are about clusters that were revoked, removed from a clusterset, or have left.
//   - The plan: plan.go, with named.go and free.go for the two ways of kinds, own.go for what this
//     cluster publishes, unread.go for clustersets that cannot be read, share.go and flaws.go for
//     what users are told about their objects, and object.go.
//   - The loop: exchange.go, sides.go, follow.go (which clustersets are read, and how), denied.go
//     (those without rights), mirror.go (watches), slim.go (what is kept of an object), rounds.go
//     and poll.go (polls), endless.go (lists that do not end), streams.go (connections), fit.go
//     (bounds of all clustersets together), pass.go, write.go, pace.go (limits of what others
//     change), recall.go (stores the memory), digest.go, status.go, refusals.go (which refused
//     objects are reported).
//   - For other packages: reclaim.go.
package exchange

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
//   - The table: kinds.go, table.go, names.go, and cel.go for the admission policies.
//   - The plan: plan.go, with named.go and free.go for the two ways of kinds, share.go and
//     flaws.go for what users are told about their objects, and object.go.
//   - Trust: statement.go has what is signed and own.go signs it; judge.go decides what
//     counts, with identity.go, memory.go and memo.go; revoke.go; renewal.go follows the grant of this cluster.
//   - The loop: exchange.go, sides.go, follow.go (which clustersets are read, and how), mirror.go
//     (watches), rounds.go and poll.go (polls), streams.go (connections), pass.go, write.go, pace.go (limits of what others
//     change), recall.go (stores the memory), digest.go, status.go; leave.go.
package exchange

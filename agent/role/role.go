// Package role has what every kind of agent has in common: a Snapshot of the cluster and the node
// goes in, a Plan and a Report come out. A Role is one kind of agent; package roles lists them all.
package role

import (
	"time"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// Role describes one kind of agent: what it plans and reports, and which parts run beside
// its loop. Plan, Report and Recall are pure functions.
type Role struct {
	// Name is the subcommand of "subctl agent", and the name in logs and field owners.
	Name string
	// Owner specifies which kernel objects belong to the role; zero if it accesses no kernel.
	Owner dataplane.Owner
	// MetricsPort and ProbePort are the TCP ports of metrics and of probes, unless the user sets
	// others.
	MetricsPort, ProbePort int
	// Resync is the time after which the loop runs although nothing has changed.
	Resync time.Duration
	// Watches lists the kinds of objects that a Snapshot of the role holds.
	Watches []Object
	// GlobalWatches lists the kinds, of which there may be many objects in all namespaces, that a
	// Snapshot also holds while the cluster has a global network.
	GlobalWatches []Object
	// Slim returns what the role looks at of an object. The agent of a role that accesses no kernel
	// holds nothing else of the objects of a cluster, of which there may be many thousands.
	Slim func(Object) Object
	// Parts lists what runs beside the loop, in the order in which snapshots are completed.
	Parts []Part
	// Plan returns what the node's kernel should hold. The error is ErrNotJoined or a
	// mistake in this cluster's own objects: it stays until one of them changes.
	Plan func(Snapshot) (Plan, error)
	// Report returns what the API server should hold.
	Report func(Snapshot, Plan, Outcome) Report
	// Recall returns the memory of an agent that has just started on a node, from the reports of
	// its cluster's gateways; nil if plans do not depend on these. bare specifies that the node
	// holds nothing of what its gateway has reported: it has booted, or was no gateway node
	// meanwhile.
	Recall func(node string, bare bool, reports []*submarinerv1.Gateway, now time.Time) Memory
}

// Nodeless reports whether the agent of a role accesses no kernel: it may run on any node.
func (r Role) Nodeless() bool { return r.Owner.Name == "" }

// Part names something that runs beside the loop of an agent; package parts has the
// implementations.
type Part string

// All parts.
const (
	Election   Part = "election"    // decides which gateways are active, and which one speaks
	KeyRing    Part = "key ring"    // reads the keys of cables from mounted Secrets
	Probing    Part = "probes"      // pings the other ends of cables
	Discovery  Part = "discovery"   // finds the paths to other gateways
	PublicIP   Part = "public IP"   // finds the address at which this gateway is reached from outside
	KernelView Part = "kernel view" // reads the state of cables from the kernel
	Drops      Part = "drops"       // reads from the kernel how many packets it has dropped between clusters
	Forwarding Part = "forwarding"  // finds out whether the node forwards packets of other clusters to pods
	FlowCount  Part = "flow count"  // reads from the kernel how many connections pass the gateway
	Networks   Part = "networks"    // finds networks that the cluster has got since it joined
	APIServers Part = "API servers" // finds the addresses of the API servers that the node needs
	Agents     Part = "agents"      // finds agents of this cluster that do not run
	Exchange   Part = "exchange"    // exchanges objects with the broker

	Allocations Part = "allocations" // remembers global addresses, and that one agent allocates them
	Leader      Part = "leader"      // ensures that one agent of several of a cluster acts
	ClusterDNS  Part = "cluster DNS" // repairs the configuration of the cluster's DNS
	Discoverer  Part = "discoverer"  // ensures that one agent of service discovery acts, and remembers who is reachable
)

// Plan is the result of Role.Plan for a Snapshot.
type Plan struct {
	// State is the desired state of the node's kernel.
	State dataplane.State
	// Sweep lists the owners whose agents no longer run on this node and whose objects
	// are to be removed.
	Sweep []dataplane.Owner
	// Probes are the addresses to ping.
	Probes Probes
	// Forward is the probe of what a route agent's node forwards; the zero value if there is none.
	Forward dataplane.ForwardProbe
	// Again is the time after which to plan again at the latest, if it is less than Role.Resync; 0
	// for none.
	Again time.Duration
	// Decisions are what the role has decided besides, of a type of its own; nil if the snapshot
	// has a mistake.
	Decisions any
}

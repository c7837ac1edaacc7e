package mesh

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// Roles returns the roles that program the kernel of their node.
func Roles() []Role { return []Role{Gateway(), Route()} }

// AllRoles returns Roles, and those whose agent runs once in a cluster.
func AllRoles() []Role { return append(Roles(), Globalnet(), GatewayNodes(), Services()) }

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

// ExchangeStatus is the state of the exchange with the broker.
type ExchangeStatus struct {
	LastSync    time.Time // when both sides were last seen to be the same; zero if never
	Errors      []string  // that exist now
	NotRead     bool      // they prevent that anything is read from the broker
	Refused     []string  // objects of other clusters that are not copied, with reasons
	RefusedMore int       // how many there are in addition to Refused
}

// Report is the desired state of objects on the API server.
type Report struct {
	// Apply are objects to apply, Delete are objects to delete.
	Apply, Delete []Object
	// Paced are objects to apply, unless other clusters have made the agent write them too often.
	Paced []Paced
	// Tolerant specifies that a write that the API server refuses is no fault of the loop: other
	// writes are made, and Snapshot.Refused has it.
	Tolerant bool
	// Status are objects whose status is applied, as far as it is set.
	Status []Object
	// UpdateStatus are objects whose status is replaced. An object that somebody else has changed
	// since it was read is left as it is: the change leads to another report.
	UpdateStatus []Object
	// More reports that there is more to write: the loop runs again at once.
	More bool
	// Again is the time after which there may be more to write, even if nothing changes; 0 for
	// never.
	Again time.Duration
	// Annotate are objects of users that have only the annotations that change, which are removed
	// if they are empty. All else of the objects stays as it is.
	Annotate []Object
	// Update are objects of users, or that users have labelled, with a change. An object that
	// somebody else has changed since it was read is not overwritten.
	Update []Object
	// Label are nodes that have only the labels and annotations that change, which are removed if
	// they are empty. All else of the nodes stays as it is.
	Label []Object
	// Warn are warnings about objects that have no condition for them. Each leads to one Event.
	Warn []Warning
}

// Warning is an Event about an object, with the type, the reason and the message of a condition.
type Warning struct {
	About     Object
	Condition metav1.Condition
}

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
	// Decisions are what the role has decided besides, of a type of its own; nil if the snapshot has
	// a mistake.
	Decisions any
}

// PlanNode returns what a node's kernel should hold, for all roles.
func PlanNode(s Snapshot) (dataplane.State, error) {
	all := dataplane.State{}
	for _, r := range Roles() {
		p, err := r.Plan(s)
		if err != nil {
			return nil, err
		}
		if err := all.Merge(p.State); err != nil {
			return nil, fmt.Errorf("merging the plan of role %s: %w", r.Name, err)
		}
	}
	return all, nil
}

package parts

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/alarm"
	"subctl/internal/wake"
)

// siblings knows which gateways of this cluster are there, if it has several. It renews the
// Lease of its own node, and reads the Leases of the others.
//
// A gateway whose Lease is not renewed may still forward packets: its agent is dead, or cannot
// reach the API server, and its kernel holds the cables. Only probes tell. So a Lease decides late,
// and only about what a lost node leaves behind: after siblingGone, the speaker deletes the
// Endpoint. The time is counted in reads after which the Lease was the same, as the clocks of nodes
// may differ. Only the reads count in which this gateway was able to renew its own Lease: if no
// gateway can, that is an outage of the API server, and no gateway is gone.
type siblings struct {
	node    string
	leases  coordinationclient.LeaseInterface
	log     *slog.Logger
	changed func()
	every   time.Duration // between two reads
	fault   alarm.Alarm

	mu        sync.Mutex
	following bool // whether the cluster has several gateways
	owner     []metav1.OwnerReference
	endpoints map[string]string // the UIDs of their Endpoints, by node
	seen      map[string]sign   // by node
	wake      wake.Signal
}

// sign is the last sign of life of a gateway: the version of its Lease, and the UID of the last
// Endpoint that it had. A gateway whose Endpoint was deleted, and that is there, writes another
// one.
type sign struct {
	lease, endpoint string
	misses          int // reads since then without another sign
}

// siblingGone is the time after which a gateway whose Lease was not renewed is considered lost. It
// is longer than the restart of an agent with a new image takes, and than Kubernetes needs to
// notice that a node is not there (40 s). Traffic does not wait for it.
//
// The Lease is renewed every renewEvery, as often as kubelets renew the Leases of nodes.
const (
	siblingGone = 60 * time.Second
	renewEvery  = 10 * time.Second
	mostMisses  = int(siblingGone / renewEvery)
)

func newSiblings(o Options, c kubernetes.Interface) *siblings {
	return &siblings{
		node:    o.Node,
		leases:  c.CoordinationV1().Leases(submarinerv1.OperatorNamespace),
		log:     o.Log,
		changed: o.Trigger,
		every:   renewEvery,
		wake:    wake.NewSignal(),
	}
}

// follow takes what a snapshot has about the gateways. It starts anew when the cluster gets several
// gateways: what it knew is old.
func (s *siblings) follow(snap role.Snapshot, several bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints = map[string]string{}
	for _, e := range members.OwnEndpoints(snap) {
		s.endpoints[e.Spec.Hostname] = string(e.UID)
	}
	s.owner = nil // of the node's Lease, which is deleted with the node
	if n := role.Find[*corev1.Node](snap, s.node); n != nil {
		s.owner = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}
	}
	if s.following != several {
		s.following = several
		s.seen = nil
		s.wake.Send()
	}
}

// presentNodes returns the nodes whose gateways are there, sorted: this one, and each other one
// that has a Lease or an Endpoint, and has shown a sign of life.
func (s *siblings) presentNodes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.there()
}

func (s *siblings) there() []string {
	nodes := map[string]bool{s.node: true}
	for node := range s.endpoints {
		nodes[node] = true // not read since
	}
	for node, sign := range s.seen {
		nodes[node] = node == s.node || sign.misses < mostMisses
	}
	maps.DeleteFunc(nodes, func(_ string, there bool) bool { return !there })
	return slices.Sorted(maps.Keys(nodes))
}

// run renews and reads until ctx is done.
func (s *siblings) run(ctx context.Context) {
	wake.Every(ctx, s.every, s.wake, func() {
		s.mu.Lock()
		following := s.following
		owner := s.owner
		s.mu.Unlock()
		if !following {
			return
		}
		leases, err := s.renew(ctx, owner)
		if ctx.Err() != nil {
			return
		}
		s.fault.Report(s.log, slog.LevelWarn, "renewing the lease of this gateway, and reading its siblings'", err)
		if err == nil && s.read(leases) {
			s.changed()
		}
	})
}

// renew renews the Lease of this node, and returns the Leases that exist.
func (s *siblings) renew(ctx context.Context, owner []metav1.OwnerReference) ([]coordinationv1.Lease, error) {
	list, err := s.leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	now := metav1.NowMicro()
	holder := submarinerv1.LeaseHolder(s.node)
	name := submarinerv1.NodeLease(s.node)
	i := slices.IndexFunc(list.Items, func(l coordinationv1.Lease) bool { return l.Name == name })
	if i < 0 {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owner}}
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity:       &holder,
			LeaseDurationSeconds: new(int32(siblingGone.Seconds())),
			AcquireTime:          &now,
			RenewTime:            &now,
		}
		_, err = s.leases.Create(ctx, lease, metav1.CreateOptions{})
		return list.Items, err
	}
	lease := list.Items[i].DeepCopy()
	lease.OwnerReferences = owner
	lease.Spec.HolderIdentity = &holder
	lease.Spec.RenewTime = &now
	_, err = s.leases.Update(ctx, lease, metav1.UpdateOptions{})
	return list.Items, err
}

// read counts one read of the Leases. It reports whether another gateway is there, or one is not
// any more.
func (s *siblings) read(leases []coordinationv1.Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.following {
		return false
	}
	before := s.there()
	now := map[string]sign{}
	for node, uid := range s.endpoints {
		now[node] = sign{endpoint: uid}
	}
	for _, l := range leases {
		if l.Spec.HolderIdentity == nil {
			continue
		}
		node, ok := strings.CutSuffix(*l.Spec.HolderIdentity, submarinerv1.LeaseHolder(""))
		if ok && l.Name == submarinerv1.NodeLease(node) {
			now[node] = sign{lease: l.ResourceVersion, endpoint: now[node].endpoint}
		}
	}
	for node, is := range now {
		was, known := s.seen[node]
		is.endpoint = cmp.Or(is.endpoint, was.endpoint)
		if known && is.lease == was.lease && is.endpoint == was.endpoint {
			is.misses = was.misses + 1
		}
		now[node] = is
	}
	s.seen = now
	return !slices.Equal(before, s.there())
}

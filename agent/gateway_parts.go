package agent

import (
	"log/slog"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"subctl/agent/discovery"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
	"subctl/internal/wake"
)

// GatewayOptions is what only a gateway's agent is run with.
type GatewayOptions struct {
	BrokerDir string // where the Secret with the broker's credentials is mounted
	Secrets   string // where the Secrets with the keys of the cables are mounted, each under its name
	Lease     Lease
}

// gatewayParts is what runs beside the loop of a gateway's agent.
type gatewayParts struct {
	elector *elector
	prober  *prober
	paths   paths
	public  *publicIP
	broker  *brokerSync
	secrets string
}

// paths is what finds the paths to other gateways: a discovery.Finder.
type paths interface {
	manager.Runnable
	Set(discovery.Search)
	Again(name string)
	Paths() map[string]discovery.Path
	PublicIP(published netip.Addr) netip.Addr
}

// newGatewayParts makes them. nudge has the loop look again.
func newGatewayParts(o Options, local client.Reader, warn func(client.Object, metav1.Condition), nudge func()) (*gatewayParts, error) {
	e, err := newElector(o.Config, o.Node, o.Gateway.Lease, o.Log, nudge)
	if err != nil {
		return nil, err
	}
	return &gatewayParts{
		elector: e,
		prober:  newProber(o.Log, nudge),
		paths:   discovery.New(o.Kernel.ListenUDP, o.Log, nudge),
		public:  &publicIP{lookUp: net.DefaultResolver.LookupNetIP, nudge: nudge, wake: wake.NewSignal()},
		broker:  &brokerSync{local: local, elector: e, config: rest.CopyConfig(o.Config), dir: o.Gateway.BrokerDir, log: o.Log, warn: warn},
		secrets: o.Gateway.Secrets,
	}, nil
}

// runnables are the parts that run beside the loop.
func (g *gatewayParts) runnables() []manager.Runnable {
	return []manager.Runnable{g.elector, g.prober, g.paths, g.public, g.broker}
}

// observe adds to a snapshot what this gateway alone knows. cables may be nil.
func (g *gatewayParts) observe(s *Snapshot, cables dataplane.Cabler, log *slog.Logger) {
	s.Leader = g.elector.isLeader()
	s.Health, s.Paths = g.prober.health(), g.paths.Paths()
	if subs := List[*v1alpha1.Submariner](*s); len(subs) > 0 {
		s.Keys = readRing(g.secrets, subs[0])
	}
	if cables != nil && s.Leader {
		var err error
		if s.Cables, err = cables.CableStates(); err != nil {
			log.Warn("looking at the cables", "err", err) // pings tell too
		}
	}
	if node := find[*corev1.Node](*s, s.Node); node != nil {
		published := s.publishedIP()
		s.PublicIP, s.PublicIPErr = g.public.of(node, g.paths.PublicIP(published), published)
	}
}

// act has the parts follow a plan, and adds to its outcome how they do. What is probed
// stays where the node does not hold the plan.
func (g *gatewayParts) act(s Snapshot, p Plan, out *Outcome) {
	if out.Err == nil {
		g.prober.set(p.Probes)
	}
	out.Health, out.Broker = g.prober.health(), g.broker.status()
	g.look(s, p.view, out.Health)
}

// look has the paths to the other gateways found while this one is the active one, and
// looked for anew where a cable is broken. A snapshot that could not be understood
// changes nothing.
func (g *gatewayParts) look(s Snapshot, v *view, health map[string]Health) {
	switch {
	case !s.Leader || v != nil && v.leaving():
		g.paths.Set(discovery.Search{})
	case v != nil:
		g.paths.Set(discovery.Search{Local: v.local(), Own: v.own, Peers: v.remote, Cables: v.peers})
	}
	for name, h := range health {
		if h.Status == submarinerv1.ConnectionError {
			g.paths.Again(name)
		}
	}
}

package parts

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/internal/wake"
)

// parsePublicIP parses the annotation or label gateway.submariner.io/public-ip of a
// gateway node: "ipv4:192.0.2.7", the bare address (a label cannot hold a colon), or
// "dns:gw.example.com". It returns either an address or a name to look up.
func parsePublicIP(text string) (ip netip.Addr, host string, err error) {
	method, value, found := strings.Cut(text, ":")
	if !found {
		method = "ipv4"
		value = text
	}
	switch method {
	case "ipv4":
		if ip, err = cable.ParseHost(value); err != nil {
			err = fmt.Errorf("%.80q is no public address: %w", value, err)
		}
	case "dns":
		if host = strings.TrimSuffix(value, "."); len(validation.IsDNS1123Subdomain(host)) > 0 {
			host = ""
			err = fmt.Errorf("%.80q is no DNS name", value)
		}
	case "api", "lb":
		err = fmt.Errorf("the method %q is not supported: write ipv4:ADDRESS or dns:NAME", method)
	default:
		err = fmt.Errorf("%.80q is neither ipv4:ADDRESS nor dns:NAME", text)
	}
	if err != nil {
		err = fmt.Errorf("node annotation %s: %w", submarinerv1.PublicIPAnnotation, err)
	}
	return ip, host, err
}

// How a name is looked up.
const (
	lookUpEvery = time.Minute // upstream's figure
	lookUpFor   = 5 * time.Second
)

// publicIP finds the address at which this gateway can be reached from outside. It asks
// nobody that the user did not specify.
type publicIP struct {
	lookUp  func(ctx context.Context, network, host string) ([]netip.Addr, error)
	trigger func() // called when the addresses of a name changed
	wake    wake.Signal

	mu   sync.Mutex
	host string
	ip   netip.Addr
	err  error
}

func newPublicIP(o Options) *publicIP {
	return &publicIP{lookUp: net.DefaultResolver.LookupNetIP, trigger: o.Trigger, wake: wake.NewSignal()}
}

// Observe implements Observer. The address in the node's annotation or label takes
// precedence over the one that discovery has found. Until the addresses of a name are
// known, the address is the one that was published before: other gateways may be using it.
func (p *publicIP) Observe(s *role.Snapshot) error {
	if node := role.Find[*corev1.Node](*s, s.Node); node != nil {
		s.PublicIP, s.PublicIPErr = p.of(node, s.PublicIP, members.PublishedIP(*s))
	}
	return nil
}

// of returns the address of a gateway node: see Observe.
func (p *publicIP) of(node *corev1.Node, discovered, published netip.Addr) (netip.Addr, error) {
	text := cmp.Or(node.Annotations[submarinerv1.PublicIPAnnotation], node.Labels[submarinerv1.PublicIPAnnotation])
	if text == "" {
		p.watch("")
		return discovered, nil
	}
	ip, host, err := parsePublicIP(text)
	if p.watch(host); host == "" {
		return ip, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ip.IsValid() {
		return published, p.err
	}
	return p.ip, p.err
}

// watch sets the name to look up; empty for none.
func (p *publicIP) watch(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.host == host {
		return
	}
	p.host = host
	p.ip = netip.Addr{}
	p.err = nil
	p.wake.Send()
}

// Start looks the name up until ctx is done.
func (p *publicIP) Start(ctx context.Context) error {
	wake.Every(ctx, lookUpEvery, p.wake, func() { p.refresh(ctx) })
	return nil
}

// refresh looks the name up once. Of several addresses the lowest counts, so that it stays
// the same. If the look-up fails, the address stays as it is.
func (p *publicIP) refresh(ctx context.Context) {
	p.mu.Lock()
	host := p.host
	p.mu.Unlock()
	if host == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpFor)
	defer cancel()
	var best netip.Addr
	ips, err := p.lookUp(ctx, "ip4", host)
	for _, ip := range ips {
		if ip, bad := cable.ParseHost(ip.Unmap().String()); bad == nil && (!best.IsValid() || ip.Less(best)) {
			best = ip
		}
	}
	if err == nil && !best.IsValid() {
		err = fmt.Errorf("%s has no public IPv4 address", host)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.host != host {
		return
	}
	was := p.ip
	had := p.err
	if p.err = nil; err != nil {
		p.err = fmt.Errorf("node annotation %s: %w", submarinerv1.PublicIPAnnotation, err)
	} else {
		p.ip = best
	}
	if p.ip != was || (p.err == nil) != (had == nil) {
		p.trigger()
	}
}

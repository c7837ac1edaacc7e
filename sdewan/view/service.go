package view

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kube"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// service is what a CNFService leads to, or why that is unknown here.
type service struct {
	object rest.Object
	err    error
}

// readServices finds the addresses of the Services that CNFServices name, as the controller does. Names of DNS are not looked up: the DNS of
// the cluster may know others than the DNS here.
func (v *View) readServices(ctx context.Context, c client.Reader) {
	v.services = map[sdewan.Rule]service{}
	for _, r := range v.Rules {
		if x, ok := r.(*batch.CNFService); ok {
			o, err := readService(ctx, c, x)
			v.services[r] = service{o, err}
		}
	}
}

func readService(ctx context.Context, c client.Reader, x *batch.CNFService) (rest.Object, error) {
	parts := strings.Split(strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(x.Spec.FullName), "."), ".cluster.local"), ".")
	key := client.ObjectKey{Namespace: x.Namespace, Name: parts[0]}
	switch {
	case len(parts) == 3 && parts[2] == "svc":
		key.Namespace = parts[1]
	case len(parts) != 1:
		return nil, fmt.Errorf("spec.fullname: the controller looks up %s in DNS, which is not done here", x.Spec.FullName)
	}
	s, err := kube.Optional(ctx, c, &corev1.Service{}, key)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fmt.Errorf("spec.fullname: there is no Service %s: create it, or correct the name", key)
	}
	address, err := netip.ParseAddr(s.Spec.ClusterIP)
	if err != nil || !address.Is4() {
		return nil, fmt.Errorf("spec.fullname: Service %s has no IPv4 address in the cluster", key)
	}
	proto := ""
	for _, p := range s.Spec.Ports {
		if strconv.Itoa(int(p.Port)) == string(x.Spec.DPort) && proto != "tcp" {
			proto = strings.ToLower(string(p.Protocol))
		}
	}
	if proto == "" {
		return nil, fmt.Errorf("spec.dport: Service %s has no port %s", key, x.Spec.DPort)
	}
	return sdewan.RenderCNFService(x, address, proto), nil
}

package view

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kube"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// service is the destination of a CNFService, or the reason why it is unknown here.
type service struct {
	object rest.Object
	err    error
}

// ReadServices finds the addresses of the Services that CNFServices name, for Plan and Explain.
// Names of DNS are not looked up: the DNS of the cluster may know others than the DNS here.
func (v *View) ReadServices(ctx context.Context, c client.Reader) {
	v.services = map[sdewan.Rule]service{}
	for _, r := range v.Rules {
		if x, ok := r.(*batch.CNFService); ok {
			o, err := readService(ctx, c, x)
			v.services[r] = service{o, err}
		}
	}
}

func readService(ctx context.Context, c client.Reader, x *batch.CNFService) (rest.Object, error) {
	name, ok := sdewan.ServiceOf(x, sdewan.ClusterDomain)
	if !ok {
		return nil, notLookedUp(x.Spec.FullName)
	}
	s, err := kube.Optional(ctx, c, &corev1.Service{}, name)
	switch {
	case err != nil:
		return nil, err
	case s == nil:
		return nil, fmt.Errorf("spec.fullname: there is no Service %s: create it, or correct the name", name)
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return nil, notLookedUp(s.Spec.ExternalName)
	}
	address, proto, err := sdewan.ServiceAddress(s, string(x.Spec.DPort))
	if err != nil {
		return nil, err
	}
	return sdewan.RenderCNFService(x, address, proto), nil
}

func notLookedUp(name string) error {
	return fmt.Errorf("spec.fullname: the controller looks up %s in DNS, which is not done here", name)
}

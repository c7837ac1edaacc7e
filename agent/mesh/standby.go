package mesh

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
)

// This file is about standbys. If only one gateway of a cluster is to be active, the others are
// standbys: each publishes its Endpoint, marked as a standby, holds cables to the gateways of all
// other clusters, probes, and is probed. Other nodes and clusters use a standby only if no active
// gateway answers: see cable.Drain. So the failure of the active gateway is found by probes, and
// the takeover is a change of routes, on each node by itself. The election follows within seconds:
// then the standby is the active gateway, and its Endpoint is without the mark.

// Standby reports whether the gateway on this node is a standby.
func (s Standing) Standby() bool { return s.Active && s.Drain == cable.Standby }

// AsStandby returns a copy of an Endpoint of this cluster that announces a standby.
func AsStandby(e *submarinerv1.Endpoint) *submarinerv1.Endpoint {
	marked := &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{Name: e.Name, Namespace: e.Namespace, UID: e.UID},
		Spec:       *e.Spec.DeepCopy(),
	}
	if marked.Spec.BackendConfig == nil {
		marked.Spec.BackendConfig = map[string]string{}
	}
	marked.Spec.BackendConfig[submarinerv1.BackendDrain] = submarinerv1.Standby
	return marked
}

// drainOf returns how far the gateway of an Endpoint has got on its way out of service, as it
// announces.
func drainOf(e *submarinerv1.Endpoint) cable.Drain {
	d, _ := cable.ParseDrain(e.Spec.BackendConfig[submarinerv1.BackendDrain]) // cable.Parse reports the mistake
	return d
}

// places returns the places that the wanted cables have taken.
func (c Cables) places() cable.Places {
	p := cable.NewPlaces(drivers.All())
	for _, w := range c.Wanted {
		_ = p.Take(w) // connect has found that it is free
	}
	return p
}

// spared is the reason why a pair has no cable while one of its gateways is not in service, and
// need not have one.
type spared struct{ error }

// place takes the place of a cable. A driver that connects to a limited number of gateways of a
// cluster connects to the active one, and not to or from a standby, or to a gateway that has left
// its role to another one. The pair gets its cable when both gateways are active.
func (c *chooser) place(made cable.Cable) error {
	if made.Driver.Properties().MaxGateways > 0 && (made.Drain == cable.Standby || c.snapshot.Standing.Standby()) {
		return spared{fmt.Errorf("%s connects to the active gateway of a cluster only", made.Driver.Name())}
	}
	err := c.places.Take(made)
	if err != nil && made.Drain != cable.InService {
		return spared{err}
	}
	return err
}

package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"subctl/globalnet/allocator"
)

// addressMeters are the metrics of the agent that allocates global addresses, with the names of
// Submariner 0.18.
type addressMeters struct {
	available, allocated prometheus.Gauge
	of                   map[string]prometheus.Gauge // by kind of the object
}

func newAddressMeters(reg prometheus.Registerer) *addressMeters {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		reg.MustRegister(g)
		return g
	}
	return &addressMeters{
		available: gauge("submariner_global_IP_availability",
			"Number of addresses of the cluster's global network that nobody holds."),
		allocated: gauge("submariner_global_IP_allocated",
			"Number of addresses of the cluster's global network that are allocated."),
		of: map[string]prometheus.Gauge{
			"GlobalEgressIP": gauge("submariner_global_egress_IP_allocated",
				"Number of addresses allocated to GlobalEgressIPs."),
			"ClusterGlobalEgressIP": gauge("submariner_cluster_global_egress_IP_allocated",
				"Number of addresses allocated to ClusterGlobalEgressIPs."),
			"GlobalIngressIP": gauge("submariner_global_ingress_IP_allocated",
				"Number of addresses allocated to GlobalIngressIPs."),
		},
	}
}

func (m *addressMeters) observe(a *allocator.Addresses) {
	u := a.Memory.Allocated.Usage()
	m.available.Set(float64(u.Free()))
	m.allocated.Set(float64(u.Held))
	for kind, g := range m.of {
		g.Set(float64(a.Used[kind]))
	}
}

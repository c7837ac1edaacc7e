package dns

import (
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	index "subctl/services/dns"
)

// meters are the metrics of the server. None has a name as a label: clients choose those.
type meters struct {
	registry *prometheus.Registry
	queries  *prometheus.CounterVec
}

func newMeters(of *index.Index) *meters {
	m := &meters{
		registry: prometheus.NewRegistry(),
		queries: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "submariner_dns_queries_total",
				Help: "Number of DNS queries for names of imported Services, by the code of the response.",
			},
			[]string{"rcode"},
		),
	}
	m.registry.MustRegister(
		m.queries,
		prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{
				Name: "submariner_dns_imports",
				Help: "Number of ServiceImports whose names the server knows.",
			},
			func() float64 {
				imports, _ := of.Count()
				return float64(imports)
			},
		),
		prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{
				Name: "submariner_dns_slices",
				Help: "Number of EndpointSlices of imported Services that the server knows.",
			},
			func() float64 {
				_, slices := of.Count()
				return float64(slices)
			},
		),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// answered counts a response.
func (m *meters) answered(rcode int) { m.queries.WithLabelValues(dns.RcodeToString[rcode]).Inc() }

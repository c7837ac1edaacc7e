package agent

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/globalnet/allocator"
)

// meters are the metrics of one agent. Connections have the names and labels of
// Submariner 0.18.
type meters struct {
	connections *prometheus.GaugeVec
	latency     *prometheus.GaugeVec
	established *prometheus.GaugeVec
	received    *prometheus.GaugeVec
	sent        *prometheus.GaugeVec
	handshake   *prometheus.GaugeVec
	mtu         *prometheus.GaugeVec
	pathMTU     *prometheus.GaugeVec
	desired     *prometheus.GaugeVec
	iterations  prometheus.Counter
	syncSeconds prometheus.Histogram
	syncErrors  prometheus.Counter
	objects     prometheus.Gauge
	operations  prometheus.Counter
	refused     prometheus.Gauge
	stuck       prometheus.Gauge
	omitted     prometheus.Gauge
	restarts    *prometheus.CounterVec
	drops       *prometheus.CounterVec
	reasons     *prometheus.CounterVec
	ignored     prometheus.Counter
	egress      *prometheus.GaugeVec

	addresses *addressMeters // nil until a plan allocates addresses
	reg       prometheus.Registerer

	since   map[string]time.Time // when a connection came up, by cable
	counted map[string]bool      // the clusters with a value of drops
}

func newMeters(role string, reg prometheus.Registerer) *meters {
	conn := []string{
		"cable_driver", "local_cluster", "local_hostname", "local_endpoint_ip", "remote_cluster", "remote_hostname",
		"remote_endpoint_ip",
	}
	own := prometheus.Labels{"role": role}
	m := &meters{
		connections: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{Name: "submariner_connections", Help: "1 for each connection, with its status."},
			append(conn, "status")),
		latency: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{
				Name: "submariner_connection_latency_seconds",
				Help: "Average round trip time through the cable.",
			},
			conn,
		),
		established: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{
				Name: "submariner_connection_established_timestamp",
				Help: "When the connection came up, in seconds since 1970.",
			},
			conn,
		),
		received: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{
				Name: "submariner_gateway_rx_bytes",
				Help: "Bytes received through an encrypted cable since its keys or its program were last replaced.",
			},
			conn,
		),
		sent: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{
				Name: "submariner_gateway_tx_bytes",
				Help: "Bytes sent through an encrypted cable since its keys or its program were last replaced.",
			},
			conn,
		),
		handshake: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{
				Name: "submariner_connection_handshake_timestamp",
				Help: "When the gateways last agreed on the keys of an encrypted cable, in seconds since 1970.",
			},
			conn,
		),
		mtu: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{
				Name: "submariner_connection_mtu_bytes",
				Help: "Largest packet that the cable carries.",
			},
			conn,
		),
		pathMTU: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{
				Name: "submariner_connection_path_mtu_bytes",
				Help: "Largest packet that the network between the gateways carries, where it was measured.",
			},
			conn,
		),
		desired: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{
				Name: "submariner_connection_desired_driver",
				Help: "1 for each connection, with the driver that it should use; cable_driver is the driver in use, or empty if there is no cable.",
			},
			append(conn, "desired_cable_driver"),
		),
		iterations: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name:        "submariner_gateway_sync_iterations",
				Help:        "Number of times that the agent read the cluster and planned the node.",
				ConstLabels: own,
			},
		),
		syncSeconds: prometheus.NewHistogram(
			prometheus.HistogramOpts{
				Name:        "submariner_sync_duration_seconds",
				Help:        "Time to plan and sync the node.",
				ConstLabels: own,
				Buckets:     prometheus.ExponentialBuckets(0.001, 4, 7),
			},
		),
		syncErrors: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name:        "submariner_sync_errors_total",
				Help:        "Number of times that the node did not hold the plan after a sync.",
				ConstLabels: own,
			},
		),
		objects: prometheus.NewGauge(
			prometheus.GaugeOpts{
				Name:        "submariner_planned_objects",
				Help:        "Number of kernel objects that the node should hold.",
				ConstLabels: own,
			},
		),
		operations: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name:        "submariner_sync_operations_total",
				Help:        "Number of changes made to the kernel.",
				ConstLabels: own,
			},
		),
		refused: prometheus.NewGauge(
			prometheus.GaugeOpts{
				Name:        "submariner_refused_endpoints",
				Help:        "Number of endpoints of other clusters that are not connected.",
				ConstLabels: own,
			},
		),
		stuck: prometheus.NewGauge(
			prometheus.GaugeOpts{
				Name:        "submariner_stuck_cable_changes",
				Help:        "Number of connections whose new or first cable has not answered for 30 s or longer.",
				ConstLabels: own,
			},
		),
		omitted: prometheus.NewGauge(
			prometheus.GaugeOpts{
				Name:        "submariner_omitted_connections",
				Help:        "Number of connections that are not connected and that have no metrics, as the report of the gateway has no room for them.",
				ConstLabels: own,
			},
		),
		restarts: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name:        "submariner_cable_program_restarts_total",
				Help:        "Number of times that charon or wireguard-go was found dead, or not answering, and was started again.",
				ConstLabels: own,
			},
			[]string{"program"},
		),
		drops: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "submariner_isolation_drops_total",
				Help: "Number of packets from and to another cluster that the node dropped because their source or destination belongs to neither cluster, or to the wrong one, such as packets for a third cluster. What WireGuard or IPsec refuses itself, because of its source, is not counted.",
			},
			[]string{"remote_cluster"},
		),
		reasons: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name:        "submariner_drops_total",
				Help:        "Number of packets that the tables of nftables and chains of iptables on the node dropped, by reason (docs/troubleshooting.md).",
				ConstLabels: own,
			},
			[]string{"reason"},
		),
		ignored: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name:        "submariner_ignored_probe_answers_total",
				Help:        "Number of answers to probes that were ignored: forged, repeated or far too late.",
				ConstLabels: own,
			},
		),
		egress: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{
				Name: "submariner_global_egress_connections",
				Help: "Number of connections from a global address to the destination with the most of them, of the 20 addresses with the fewest ports left. 65536 are possible.",
			},
			[]string{"address"},
		),
		since: map[string]time.Time{},
		reg:   reg,
	}
	for _, g := range m.ofConnections() {
		reg.MustRegister(g)
	}
	reg.MustRegister(m.iterations, m.syncSeconds, m.syncErrors, m.objects, m.operations, m.refused, m.stuck, m.omitted,
		m.restarts, m.drops, m.reasons, m.ignored, m.egress)
	return m
}

// ofConnections returns the metrics that have a value for each connection.
func (m *meters) ofConnections() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{
		m.connections, m.latency, m.established, m.received, m.sent, m.handshake, m.mtu, m.pathMTU, m.desired,
	}
}

// registry returns the registry that /metrics serves.
func registry() prometheus.Registerer { return metrics.Registry }

func (m *meters) observe(p role.Plan, ops int, took time.Duration, out role.Outcome) {
	if decided, is := p.Decisions.(*allocator.Addresses); is {
		if m.addresses == nil {
			m.addresses = newAddressMeters(m.reg)
		}
		m.addresses.observe(decided)
	}
	m.iterations.Inc()
	m.syncSeconds.Observe(took.Seconds())
	m.operations.Add(float64(ops))
	if out.Err != nil {
		m.syncErrors.Inc()
	}
	if !out.Contained {
		return
	}
	m.objects.Set(float64(len(p.State)))
	if of := mesh.PlanOf(p).Mesh; of != nil {
		m.refused.Set(float64(len(of.Cables.Refused)))
	}
}

// countRestart counts programs that were found dead and started again.
func (m *meters) countRestart(program string, times int) {
	m.restarts.WithLabelValues(program).Add(float64(times))
}

// addDropped adds packets that were dropped, by cluster and by reason. Other clusters have left:
// their IDs must not stay.
func (m *meters) addDropped(more, reasons map[string]uint64) {
	for reason, n := range reasons {
		m.reasons.WithLabelValues(reason).Add(float64(n))
	}
	for cluster := range m.counted {
		if _, ok := more[cluster]; !ok {
			m.drops.DeleteLabelValues(cluster)
		}
	}
	m.counted = make(map[string]bool, len(more))
	for cluster, n := range more {
		m.drops.WithLabelValues(cluster).Add(float64(n))
		m.counted[cluster] = true
	}
}

// setReported updates the metrics of connections, which are as old as the last report of them.
func (m *meters) setReported(r role.Report, out role.Outcome) {
	for _, o := range r.Apply {
		if g, ok := o.(*submarinerv1.Gateway); ok {
			m.setConnected(g.Status, out.Health, out.Now)
		}
	}
}

// setConnected sets the metrics of the connections of a Gateway.
func (m *meters) setConnected(s submarinerv1.GatewayStatus, health map[string]role.Health, now time.Time) {
	for _, g := range m.ofConnections() {
		g.Reset()
	}
	up := map[string]time.Time{}
	stuck := 0
	for _, c := range s.Connections {
		if c.Stuck(now) {
			stuck++
		}
		l := []string{
			c.Driver, s.LocalEndpoint.ClusterID, s.LocalEndpoint.Hostname, s.LocalEndpoint.PrivateIP,
			c.Endpoint.ClusterID, c.Endpoint.Hostname, c.UsingIP,
		}
		m.connections.WithLabelValues(append(l, string(c.Status))...).Set(1)
		m.setDetails(c, l)
		if c.Status != submarinerv1.Connected {
			continue
		}
		name := c.Endpoint.CableName
		if up[name] = m.since[name]; up[name].IsZero() {
			up[name] = now
		}
		m.established.WithLabelValues(l...).Set(float64(up[name].Unix()))
		if mean, ok := health[name].RTT.Mean(); ok {
			m.latency.WithLabelValues(l...).Set(mean)
		}
	}
	m.since = up
	m.stuck.Set(float64(stuck))
	m.omitted.Set(float64(s.ConnectionsOmittedDown))
	m.egress.Reset()
	for _, u := range s.GlobalEgress {
		m.egress.WithLabelValues(u.Address).Set(float64(u.BusiestConnections))
	}
}

// setDetails sets the metrics of what a connection reports about its cable, as far as it is
// known. l are the labels of the connection, of which the first is the driver.
func (m *meters) setDetails(c submarinerv1.Connection, l []string) {
	inUse := slices.Clone(l)
	if c.Device == "" {
		inUse[0] = "" // there is no cable
	}
	m.desired.WithLabelValues(append(inUse, c.DesiredDriver)...).Set(1)
	if c.ReceivedBytes != nil && c.SentBytes != nil {
		m.received.WithLabelValues(l...).Set(float64(*c.ReceivedBytes))
		m.sent.WithLabelValues(l...).Set(float64(*c.SentBytes))
	}
	if c.LastHandshake != nil {
		m.handshake.WithLabelValues(l...).Set(float64(c.LastHandshake.Unix()))
	}
	if c.MTU > 0 {
		m.mtu.WithLabelValues(l...).Set(float64(c.MTU))
	}
	if c.PathMTU > 0 {
		m.pathMTU.WithLabelValues(l...).Set(float64(c.PathMTU))
	}
}

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"

	"subctl/dataplane"
)

// metricsPage is a format string with the three ports of metrics, the rows of the table, and the
// two ports of probes. ~ stands for the backquote.
const metricsPage = `<!-- generated: make generate -->

# Metrics

Every agent serves Prometheus metrics over HTTP (~/metrics~), on all addresses of its node: gateway agents on port %d,
route agents on port %d. The DNS server for imported Services serves its own, ~submariner_dns_*~, on port %d of its pods. Metrics contain no secrets, but they do contain the IDs and addresses of this cluster and of the clusters that share a clusterset with it:
restrict access to these ports if these must not be visible. Other clusters do not reach them through cables, but whoever reaches the addresses of the nodes does.

| metric | type | labels | description |
| --- | --- | --- | --- |
%s
The metrics of the Go runtime (~go_*~), of the process (~process_*~) and of controller-runtime (~controller_runtime_*~,
~rest_client_*~) are also served. Only gateways have connections.

## Collecting metrics

The pods have no Prometheus annotations. Configure Prometheus to discover them in the namespace of the agents:

~~~yaml
scrape_configs:
- job_name: subctl
  kubernetes_sd_configs:
  - role: pod
    namespaces: {names: [submariner-operator]}
  relabel_configs:
  - source_labels: [__meta_kubernetes_pod_container_port_name]
    regex: metrics
    action: keep
~~~

## Alerts

~~~yaml
groups:
- name: subctl
  rules:
  - alert: ClusterNotConnected
    expr: submariner_connections{status!="connected"} == 1
    for: 2m
  - alert: OmittedConnectionsDown
    expr: submariner_omitted_connections > 0
    for: 2m
  - alert: NodeNotAsPlanned
    expr: increase(submariner_sync_errors_total[10m]) > 3
  - alert: CableChangeStuck
    expr: submariner_stuck_cable_changes > 0
  - alert: EndpointsRefused
    expr: submariner_refused_endpoints > 0
    for: 10m
~~~

For what to do next, see [troubleshooting](troubleshooting.md).

## Health

On the loopback address of the node, ~/healthz~ returns 200 while the agent's loop runs, and ~/readyz~ returns 200 once the node's
kernel has held its plan; otherwise they return 503 with the reason. The port is %d for gateway agents and %d for route agents.
The kubelet of the node uses both as probes of the pods.
`

// metric is one of the agents' metrics.
type metric struct {
	name, kind, help string
	labels           []string
}

// metrics returns the page of the metrics that Go files define.
func metrics(files ...string) (string, error) {
	var found []metric
	for _, file := range files {
		more, err := readMetrics(file)
		if err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		found = append(found, more...)
	}
	var b strings.Builder
	for _, m := range found {
		labels := "none"
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, cell(m.help))
	}
	return fmt.Sprintf(strings.ReplaceAll(metricsPage, "~", "`"), dataplane.GatewayMetricsPort,
		dataplane.RouteMetricsPort, dataplane.DNSMetricsPort, b.String(), dataplane.GatewayProbePort,
		dataplane.RouteProbePort), nil
}

// constructor matches the functions of the Prometheus client that create a metric.
var constructor = regexp.MustCompile(`^New(Counter|Gauge|Histogram|Summary)(Vec|Func)?$`)

// readMetrics finds the calls that create metrics, such as
// NewGaugeVec(GaugeOpts{Name: "a", Help: "b"}, labels), in source order.
func readMetrics(file string) ([]metric, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		return nil, err
	}
	r := metricReader{vars: map[string]ast.Expr{}}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i := range min(len(n.Lhs), len(n.Rhs)) {
				if id, ok := n.Lhs[i].(*ast.Ident); ok {
					r.vars[id.Name] = n.Rhs[i]
				}
			}
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				break
			}
			if kind := constructor.FindStringSubmatch(f.Sel.Name); kind != nil && len(n.Args) > 0 {
				args := n.Args
				if kind[2] == "Func" {
					args = args[:1] // the other one is a function, which has no labels
				}
				r.metric(strings.ToLower(kind[1]), args)
			}
		}
		return true
	})
	return r.found, errors.Join(r.errs...)
}

// metricReader evaluates the Go expressions that define metrics.
type metricReader struct {
	vars  map[string]ast.Expr // expressions assigned to variables, by name
	found []metric
	errs  []error
}

// metric records the metric that a constructor creates from its arguments.
func (r *metricReader) metric(kind string, args []ast.Expr) {
	m := metric{kind: kind}
	opts, _ := args[0].(*ast.CompositeLit)
	for _, e := range elements(opts) {
		field, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch fmt.Sprint(field.Key) {
		case "Name":
			m.name = r.text(field.Value)
		case "Help":
			m.help = r.text(field.Value)
		case "ConstLabels":
			m.labels = append(m.labels, r.list(field.Value)...)
		}
	}
	for _, labels := range args[1:] {
		m.labels = append(m.labels, r.list(labels)...)
	}
	if m.name == "" || m.help == "" {
		r.errs = append(r.errs, fmt.Errorf("metric %q must have a literal Name and Help", m.name))
	}
	r.found = append(r.found, m)
}

// text returns the value of a string literal.
func (r *metricReader) text(e ast.Expr) string {
	if literal, ok := e.(*ast.BasicLit); ok {
		if s, err := strconv.Unquote(literal.Value); err == nil {
			return s
		}
	}
	r.errs = append(r.errs, fmt.Errorf("%T instead of a string literal", e))
	return ""
}

// list returns the names in a list of labels: a literal, a variable that holds one, or
// an append to one.
func (r *metricReader) list(e ast.Expr) (out []string) {
	if id, ok := e.(*ast.Ident); ok {
		e = r.vars[id.Name]
	}
	var names []ast.Expr
	switch e := e.(type) {
	case *ast.CallExpr: // append(list, name)
		out = r.list(e.Args[0])
		names = e.Args[1:]
	case *ast.CompositeLit:
		names = elements(e)
	default:
		r.errs = append(r.errs, fmt.Errorf("%T instead of a list of labels", e))
	}
	for _, name := range names {
		if pair, ok := name.(*ast.KeyValueExpr); ok { // of prometheus.Labels
			name = pair.Key
		}
		out = append(out, r.text(name))
	}
	return out
}

func elements(c *ast.CompositeLit) []ast.Expr {
	if c == nil {
		return nil
	}
	return c.Elts
}

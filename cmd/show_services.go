package cmd

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"subctl/cluster"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/words"
)

const servicesLong = `The first table has the Services that the cluster exports (docs/services.md). STATE is "exported";
"waiting", with the reason, if other clusters cannot reach the Service yet; or "conflict", if the
clusters that export the Service disagree about it. MODE is "pods" if other clusters connect to the
pods, and "address" if they connect to the cluster IP or the global address of the Service.
ENDPOINTS are those that are ready, of all. OPTIONS is there if a Service is exported with
--spread or --direct.

The second table has the Services that the cluster imports, its own exports included: the name, the
address that the name stands for in this cluster, and the ports. STATE is "imported"; "waiting" if
it has no address yet, or somebody else has made an object whose name it needs; "refused" if it is
refused from all clusters that export it; or "foreign" if another program has made the
ServiceImport. A Service is imported into clusters that have its namespace; -o wide and -o json also
have the others.

The third table has the clusters that export each of them. MODE is "address" if connections go to
the cluster IP or the global address of the Service: the cluster publishes no pods, or the broker is
away, so that nobody knows which pods there are (docs/services.md). READY are the endpoints that are ready,
of all; KNOWN is the time since the cluster signed what it publishes, by its own clock: it publishes
again when something changes. STATE is

  used          connections use the endpoints
  withheld      they do not, while an endpoint of this cluster is ready: own endpoints come first
  not ready     no endpoint is ready
  unreachable   no gateway is connected to the cluster: its endpoints are kept, and not used
  refused       the cluster may not export the Service, or what it publishes is not valid
  pending       the agent has not seen it
  no namespace  this cluster does not have the namespace

The exit code is 3 if an agent does not run; if an export or an import waits for more than 15 s; if
clusters disagree; or if something is refused.`

// servicesRow is what a cluster exports and imports; its JSON is a promise.
type servicesRow struct {
	Cluster string            `json:"cluster"`
	Exports []exportedService `json:"exports"`
	Imports []importedService `json:"imports"`
}

// servicePort is a port of a Service.
type servicePort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"` // TCP, UDP or SCTP
	Port     int32  `json:"port"`
}

// endpointCount is how many endpoints there are.
type endpointCount struct {
	Ready int `json:"ready"`
	All   int `json:"all"`
}

// String returns the count for a table; empty if it is not known.
func (n *endpointCount) String() string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d", n.Ready, n.All)
}

// servicesTable returns the table of the Services that f chooses.
func servicesTable(f serviceFilter) look.Section {
	return look.View[servicesRow]{
		Noun: servicesNoun, Short: "Show exported and imported Services", Long: servicesLong, Joined: true,
		Reads: []look.Read{
			look.ReadMembers, look.ReadServices,
			look.ReadDeployments(cluster.ServiceDiscoveryName, cluster.DNSName),
		},
		Rows: f.rows, Tables: servicesTables, Trouble: servicesTrouble, Note: f.note,
		NoneOf: func(s look.Site) string {
			if s.Services == nil {
				return "service discovery is off: subctl join --service-discovery turns it on"
			}
			return f.none()
		},
	}.Section()
}

// rows returns the row of a cluster; none if it exports and imports nothing.
func (f serviceFilter) rows(s look.Site) []servicesRow {
	if s.Services == nil {
		return nil
	}
	known := newKnownServices(s)
	r := servicesRow{Cluster: s.Name, Exports: known.exports(), Imports: known.imports()}
	r.Exports = slices.DeleteFunc(r.Exports, func(e exportedService) bool { return f.leavesOut(e.Namespace, e.Name) })
	r.Imports = slices.DeleteFunc(r.Imports, func(i importedService) bool { return f.leavesOut(i.Namespace, i.Name) })
	if len(r.Exports)+len(r.Imports) == 0 {
		return nil
	}
	return []servicesRow{r}
}

// servicesTables prints exports, imports, and who exports what is imported.
func servicesTables(w io.Writer, format printer.Format, r servicesRow) error {
	columns := []printer.Column[exportedService]{
		{Head: "EXPORT", Max: 60, Cell: func(e exportedService) string { return e.Namespace + "/" + e.Name }},
		{Head: "TYPE", Cell: func(e exportedService) string { return e.Type }},
		{Head: "PORTS", Max: 40, Cell: func(e exportedService) string { return portsText(e.Ports) }},
		{Head: "MODE", Cell: func(e exportedService) string { return e.Mode }},
		{Head: "ENDPOINTS", Cell: func(e exportedService) string { return e.Endpoints.String() }},
		{Head: "STATE", Max: 60, Cell: exportedService.stateText},
	}
	options := func(e exportedService) string { return optionsText(e.Spread, e.Direct) }
	if err := printer.Print(w, format, r.Exports, withOptions(columns, r.Exports, options)); err != nil {
		return err
	}
	imports := r.Imports
	if format != printer.Wide {
		imports = slices.DeleteFunc(slices.Clone(imports),
			func(i importedService) bool { return i.State == importNoNamespace })
	}
	if len(imports) == 0 {
		return nil
	}
	if len(r.Exports) > 0 {
		fmt.Fprintln(w)
	}
	importColumns := []printer.Column[importedService]{
		{Head: "IMPORT", Max: 70, Cell: func(i importedService) string { return i.DNSName }},
		{Head: "TYPE", Cell: func(i importedService) string { return i.Type }},
		{Head: "ADDRESS", Cell: func(i importedService) string { return strings.Join(i.IPs, ", ") }},
		{Head: "PORTS", Max: 40, Cell: func(i importedService) string { return portsText(i.Ports) }},
		{Head: "STATE", Cell: func(i importedService) string { return i.State }},
	}
	importOptions := func(i importedService) string { return optionsText(i.Spread, i.Direct) }
	if err := printer.Print(w, format, imports, withOptions(importColumns, imports, importOptions)); err != nil {
		return err
	}
	var from []serviceSource
	for _, i := range imports {
		for _, x := range i.Clusters {
			from = append(from, serviceSource{i.Namespace + "/" + i.Name, x})
		}
	}
	if len(from) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return printer.Print(w, format, from, []printer.Column[serviceSource]{
		{Head: "SERVICE", Max: 60, Cell: func(f serviceSource) string { return f.service }},
		{Head: "CLUSTER", Cell: func(f serviceSource) string { return f.Cluster }},
		{Head: "MODE", Cell: func(f serviceSource) string { return f.Mode }},
		{Head: "READY", Cell: func(f serviceSource) string { return f.Endpoints.String() }},
		{Head: "KNOWN", Cell: func(f serviceSource) string { return f.age }},
		{Head: "STATE", Max: 70, Cell: serviceSource.stateText},
	})
}

// withOptions returns columns with the column OPTIONS before the last one, if it is not empty.
func withOptions[T any](columns []printer.Column[T], rows []T, options func(T) string) []printer.Column[T] {
	if !slices.ContainsFunc(rows, func(r T) bool { return options(r) != "" }) {
		return columns
	}
	return slices.Insert(columns, len(columns)-1, printer.Column[T]{Head: "OPTIONS", Cell: options})
}

// optionsText returns the annotations of an export for a table.
func optionsText(spread, direct bool) string {
	var out []string
	if spread {
		out = append(out, "spread")
	}
	if direct {
		out = append(out, "direct")
	}
	return strings.Join(out, ", ")
}

// serviceSource is a cluster that exports an imported Service.
type serviceSource struct {
	service string
	exporter
}

// portsText returns ports for a table.
func portsText(ports []servicePort) string {
	var out []string
	for _, p := range ports {
		out = append(out, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
	}
	return strings.Join(out, ", ")
}

// publishTime is how long an export, or an import, may take until other clusters, or this one, can
// use it.
const publishTime = 15 * time.Second

// servicesTrouble returns the agents that do not run, the exports and imports that wait or are in
// conflict, and what is refused.
func servicesTrouble(s look.Site, rows []servicesRow) []string {
	if s.Services == nil {
		return nil
	}
	out := s.Faults(cluster.ServiceDiscoveryName, cluster.DNSName)
	var waiting, conflicts, missing, refused []string
	for _, r := range rows {
		for _, e := range r.Exports {
			switch {
			case e.State == exportWaiting && s.Now.Sub(e.since) > publishTime:
				waiting = append(waiting, fmt.Sprintf("Service %s/%s is not exported yet: %s", e.Namespace, e.Name,
					cmp.Or(e.Message, e.Reason)))
			case e.State == exportConflict:
				conflicts = append(conflicts, fmt.Sprintf("exports of Service %s/%s are in conflict: %s", e.Namespace,
					e.Name, cmp.Or(e.Message, e.Reason)))
			}
		}
		for _, i := range r.Imports {
			if i.State == importWaiting && s.Now.Sub(i.since) > publishTime {
				missing = append(missing, fmt.Sprintf("imported Service %s/%s is not ready in this cluster: %s",
					i.Namespace, i.Name, i.Message))
			}
			for _, x := range i.Clusters {
				if x.Reason != "" {
					refused = append(refused, fmt.Sprintf("Service %s/%s of cluster %s is refused: %s", i.Namespace,
						i.Name, x.Cluster, x.Reason))
				}
			}
		}
	}
	for _, part := range [][]string{waiting, conflicts, missing, refused} {
		out = append(out, few(part)...)
	}
	return out
}

// few returns the first lines of a list, and how many there are more.
func few(lines []string) []string {
	if n := len(lines) - listedWaiting; n > 0 {
		return append(slices.Clone(lines[:listedWaiting]), words.Count(n, "more Service")+" like the last one: see "+
			"-o json")
	}
	return lines
}

// note returns the namespaces that the cluster lacks to import what others export.
func (f serviceFilter) note(s look.Site) string {
	services := 0
	var namespaces []string
	for _, r := range f.rows(s) {
		for _, i := range r.Imports {
			if i.State == importNoNamespace {
				services++
				namespaces = append(namespaces, i.Namespace)
			}
		}
	}
	if services == 0 {
		return ""
	}
	return fmt.Sprintf("%s not imported, as the cluster lacks namespace %s",
		words.Count(services, "Service")+map[bool]string{
			true:  " is",
			false: " are",
		}[services == 1], words.List(words.Distinct(namespaces)))
}

package cmd

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"subctl/internal/printer"
)

const versionsLong = `CONFIGURED is the version that was asked for, RUNNING what the agents report (several if
they differ), ARCH the processors of the nodes they run on.`

// unavailable is the version of what does not report one.
const unavailable = "Unavailable"

// versionRow is a component of a cluster; its JSON is a promise.
type versionRow struct {
	Cluster    string   `json:"cluster"`
	Component  string   `json:"component"`
	Repository string   `json:"repository"`
	Configured string   `json:"configured"`
	Running    []string `json:"running"`
	Arch       []string `json:"arch"`
}

func versionsView() view[versionRow] {
	return view[versionRow]{
		noun: "versions", short: "Show the versions of what is installed", joined: true,
		reads: []read{readGateways, readRouteAgents, readWorkloads}, rows: versionRows,
		columns: []printer.Column[versionRow]{
			{Head: "COMPONENT", Cell: func(r versionRow) string { return r.Component }},
			{Head: "REPOSITORY", Cell: func(r versionRow) string { return r.Repository }},
			{Head: "CONFIGURED", Cell: func(r versionRow) string { return r.Configured }},
			{Head: "RUNNING", Cell: func(r versionRow) string { return cmp.Or(strings.Join(r.Running, ", "), unavailable) }},
			{Head: "ARCH", Cell: func(r versionRow) string { return strings.Join(r.Arch, ", ") }},
		},
		trouble: func(_ site, rows []versionRow) []string {
			if len(rows) == 0 {
				return []string{"no components found"}
			}
			return nil
		},
	}
}

func versionRows(s site) []versionRow {
	var rows []versionRow
	add := func(name string, pod corev1.PodTemplateSpec) {
		if len(pod.Spec.Containers) == 0 {
			return
		}
		r := versionRow{Cluster: s.name, Component: name, Running: running(s, name), Arch: architectures(s, pod.Labels)}
		r.Repository, r.Configured = splitImage(pod.Spec.Containers[0].Image)
		rows = append(rows, r)
	}
	for _, ds := range s.daemonSets {
		add(ds.Name, ds.Spec.Template)
	}
	for _, d := range s.deployments {
		add(d.Name, d.Spec.Template)
	}
	slices.SortFunc(rows, func(a, b versionRow) int { return strings.Compare(a.Component, b.Component) })
	return rows
}

// running returns the versions that the agents of a component report.
func running(s site, component string) []string {
	found := []string{}
	switch component {
	case "submariner-gateway":
		for _, gw := range s.gateways {
			found = append(found, gw.Status.Version)
		}
	case "submariner-routeagent":
		for _, ra := range s.routeAgents {
			found = append(found, ra.Status.Version)
		}
	}
	return unique(found)
}

// architectures returns the processors of the nodes on which pods with the labels run.
func architectures(s site, template map[string]string) []string {
	arch := map[string]string{}
	for _, n := range s.nodes {
		arch[n.Name] = n.Labels[corev1.LabelArchStable]
	}
	selector := labels.SelectorFromSet(template)
	found := []string{}
	for _, p := range s.pods {
		if selector.Matches(labels.Set(p.Labels)) {
			found = append(found, arch[p.Spec.NodeName])
		}
	}
	return unique(found)
}

// splitImage takes an image's name apart: repository, and tag or digest.
func splitImage(image string) (repository, version string) {
	at := strings.LastIndexAny(image, ":@")
	if at <= strings.LastIndex(image, "/") { // no tag; a colon before the last slash is a port
		return strings.TrimSuffix(image[:max(0, strings.LastIndex(image, "/"))], "/"), "latest"
	}
	return image[:max(0, strings.LastIndex(image[:at], "/"))], image[at+1:]
}

package cmd

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/words"
)

const versionsLong = `CONFIGURED is the version in the image, RUNNING lists the versions that the agents report (for
agents in Deployments, those of the images of their pods), and ARCH the processor architectures of their nodes.`

// unavailable is the version of a component that reports none.
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

func versionsTable() look.Section {
	return look.View[versionRow]{
		Noun: "versions", Short: "Show the versions of the agents", Long: versionsLong, Joined: true,
		Reads: []look.Read{look.ReadGateways, look.ReadRouteAgents, look.ReadWorkloads}, Rows: versionRows,
		Columns: []printer.Column[versionRow]{
			{Head: "COMPONENT", Cell: func(r versionRow) string { return r.Component }},
			{Head: "REPOSITORY", Cell: func(r versionRow) string { return r.Repository }},
			{Head: "CONFIGURED", Cell: func(r versionRow) string { return r.Configured }},
			{
				Head: "RUNNING",
				Cell: func(r versionRow) string { return cmp.Or(strings.Join(r.Running, ", "), unavailable) },
			},
			{Head: "ARCH", Cell: func(r versionRow) string { return strings.Join(r.Arch, ", ") }},
		},
		Trouble: func(s look.Site, rows []versionRow) []string {
			if len(rows) == 0 {
				return []string{"no components found"}
			}
			var names []string
			for _, r := range rows {
				names = append(names, r.Component)
			}
			return s.Faults(names...)
		},
	}.Section()
}

func versionRows(s look.Site) []versionRow {
	var rows []versionRow
	add := func(name string, pod corev1.PodTemplateSpec) {
		if len(pod.Spec.Containers) == 0 {
			return
		}
		r := versionRow{
			Cluster:   s.Name,
			Component: name,
			Running:   running(s, name, pod.Labels),
			Arch:      architectures(s, pod.Labels),
		}
		r.Repository, r.Configured = splitImage(pod.Spec.Containers[0].Image)
		rows = append(rows, r)
	}
	for _, ds := range s.DaemonSets {
		add(ds.Name, ds.Spec.Template)
	}
	for _, d := range s.Deployments {
		add(d.Name, d.Spec.Template)
	}
	slices.SortFunc(rows, func(a, b versionRow) int { return strings.Compare(a.Component, b.Component) })
	return rows
}

// running returns the versions that the agents of a component report. Agents in Deployments report
// none: theirs are those of the images of the running pods with the labels.
func running(s look.Site, component string, template map[string]string) []string {
	found := []string{}
	switch component {
	case "submariner-gateway":
		for _, gw := range s.Gateways {
			found = append(found, gw.Status.Version)
		}
	case "submariner-routeagent":
		for _, ra := range s.RouteAgents {
			found = append(found, ra.Status.Version)
		}
	default:
		for _, p := range podsWith(s, template) {
			if p.Status.Phase == corev1.PodRunning && len(p.Spec.Containers) > 0 {
				_, version := splitImage(p.Spec.Containers[0].Image)
				found = append(found, version)
			}
		}
	}
	return words.Distinct(found)
}

// architectures returns the architectures of the nodes on which pods with the labels run.
func architectures(s look.Site, template map[string]string) []string {
	arch := map[string]string{}
	for _, n := range s.Nodes {
		arch[n.Name] = n.Labels[corev1.LabelArchStable]
	}
	found := []string{}
	for _, p := range podsWith(s, template) {
		found = append(found, arch[p.Spec.NodeName])
	}
	return words.Distinct(found)
}

// podsWith returns the pods with the labels.
func podsWith(s look.Site, template map[string]string) (out []corev1.Pod) {
	selector := labels.SelectorFromSet(template)
	for _, p := range s.Pods {
		if selector.Matches(labels.Set(p.Labels)) {
			out = append(out, p)
		}
	}
	return out
}

// splitImage splits the name of an image into repository, and tag or digest.
func splitImage(image string) (repository, version string) {
	at := strings.LastIndexAny(image, ":@")
	if at <= strings.LastIndex(image, "/") { // no tag; a colon before the last slash is a port
		return strings.TrimSuffix(image[:max(0, strings.LastIndex(image, "/"))], "/"), "latest"
	}
	return image[:max(0, strings.LastIndex(image[:at], "/"))], image[at+1:]
}

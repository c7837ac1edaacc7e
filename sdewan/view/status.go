package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// PodStatus is the status of a pod of a CNF; its JSON is a promise.
type PodStatus struct {
	Namespace string   `json:"namespace"`
	Purpose   string   `json:"purpose"`
	Pod       string   `json:"pod"`
	Node      string   `json:"node"`
	IP        string   `json:"ip"`
	Read      string   `json:"read,omitempty"` // RFC 3339: when the answer changed last
	Uplinks   []string `json:"uplinks"`        // NAME STATUS
	// NAME up, connecting, waiting (for the other end, or for traffic) or down
	Tunnels    []string `json:"tunnels"`
	IKE        []string `json:"ike"`        // REMOTE STATE: as strongSwan calls it, such as ESTABLISHED, or "none"
	VirtualIPs []string `json:"virtualIPs"` // REMOTE ADDRESS: addresses that the pod has from others
	Leases     []string `json:"leases"`     // REMOTE ADDRESS: addresses that others have from the pod
	// TunnelCounts has the numbers of tunnels, remotes and leases. The lists may have fewer: see
	// Cut. It is nil if the pod has not told.
	TunnelCounts *rest.TunnelCounts `json:"tunnelCounts,omitempty"`
	// entries of the connection table: a CNF of subctl lists at most rest.MaxEntries; nil if it has
	// not told
	Connections *int `json:"connections,omitempty"`
	Routes      *int `json:"routes,omitempty"` // likewise
	// likewise: entries of the neighbour tables (ARP and NDP)
	Neighbours *int `json:"neighbours,omitempty"`
	// modules whose entries were too many to be kept: only their number is known, or 0 if it is
	// not; of ipsec, also the tunnels that are not up, as far as they fit
	Cut      []string        `json:"cut,omitempty"`
	Problems []string        `json:"problems"`
	Status   json.RawMessage `json:"status,omitempty"` // the pod's answer

	ineffective int // objects without effect
}

// maxStatus is the longest answer of a pod that is looked at, in bytes.
const maxStatus = 1 << 20

// maxIneffective is the maximum number of objects without effect that are listed for a pod.
const maxIneffective = 10

// PodStatuses returns what each pod of each CNF does. A pod that has not reported yet has a
// problem; reports of pods that are gone are left out.
func (v *View) PodStatuses() []PodStatus {
	out := []PodStatus{}
	type cnf struct{ namespace, purpose string }
	silent := map[cnf]map[string]corev1.Pod{} // pods without a report
	for _, c := range v.CNFs {
		if len(c.Pods) > sdewan.MaxPods {
			continue // which of them have reports is the controller's choice
		}
		pods := map[string]corev1.Pod{}
		for _, p := range c.Pods {
			if ended := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded; !ended {
				pods[p.Name] = p
			}
		}
		silent[cnf{c.Deployment.Namespace, c.Purpose()}] = pods
	}
	for _, s := range v.Statuses {
		for _, i := range s.Status.Information {
			p := PodStatus{
				Namespace:  cmp.Or(i.Namespace, s.Namespace),
				Purpose:    cmp.Or(i.Purpose, s.Labels[sdewan.PurposeLabel]),
				Pod:        i.Name,
				Node:       i.Node,
				IP:         i.IP,
				Uplinks:    []string{},
				Tunnels:    []string{},
				IKE:        []string{},
				VirtualIPs: []string{},
				Leases:     []string{},
				Problems:   []string{},
			}
			if pods, known := silent[cnf{p.Namespace, p.Purpose}]; known {
				if _, lives := pods[p.Pod]; !lives {
					continue
				}
				delete(pods, p.Pod)
			}
			if s.Status.AppliedTime != nil {
				p.Read = s.Status.AppliedTime.UTC().Format("2006-01-02T15:04:05Z")
			}
			if i.Error != "" {
				p.Problems = append(p.Problems, i.Error)
			} else {
				p.parse(i.Status)
			}
			out = append(out, p)
		}
	}
	for c, pods := range silent {
		for name, pod := range pods {
			out = append(out, PodStatus{
				Namespace:  c.namespace,
				Purpose:    c.purpose,
				Pod:        name,
				Node:       pod.Spec.NodeName,
				IP:         pod.Status.PodIP,
				Uplinks:    []string{},
				Tunnels:    []string{},
				IKE:        []string{},
				VirtualIPs: []string{},
				Leases:     []string{},
				Problems:   []string{"it has not reported yet: wait, or see subctl sdewan show cnfs"},
			})
		}
	}
	slices.SortFunc(out, func(a, b PodStatus) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Purpose, b.Purpose),
			cmp.Compare(a.Pod, b.Pod))
	})
	return out
}

// parse reads the answer of a pod to GET sdewan/v1/status: a list of modules. Modules that it does
// not understand are skipped.
func (p *PodStatus) parse(text string) {
	var modules []struct {
		Name   string          `json:"name"`
		Status json.RawMessage `json:"status"`
		Error  json.RawMessage `json:"error"`
		Count  int             `json:"count"`
	}
	if err := json.Unmarshal([]byte(text[:min(len(text), maxStatus)]), &modules); err != nil {
		p.Problems = append(p.Problems, "its answer is no list of modules, or was too long")
		return
	}
	p.Status = json.RawMessage(text)
	for _, m := range modules {
		if m.Error != nil && string(m.Error) != "null" {
			p.Problems = append(p.Problems, fmt.Sprintf("it cannot report %s: see its log", m.Name))
			continue
		}
		if string(m.Status) == batch.TooLong && slices.Contains([]string{"wan", "ipsec", "effect"}, m.Name) {
			p.Problems = append(p.Problems, fmt.Sprintf("its status of %s is too long to be shown", m.Name))
			continue
		}
		entries := rest.Entries(m.Status)
		if string(m.Status) == batch.TooLong {
			entries = m.Count
			p.Cut = append(p.Cut, m.Name)
		}
		switch m.Name {
		case "wan":
			p.wan(m.Status)
		case "ipsec":
			p.ipsec(m.Status)
		case "effect":
			p.effect(m.Status)
		case "conntrack":
			p.Connections = &entries
		case "route":
			p.Routes = &entries
		case "neighbour":
			p.Neighbours = &entries
		}
	}
}

// Number returns a number of entries for people: whether it is a lower bound, or unknown, if the
// module reported too much, or nothing.
func (p PodStatus) Number(module string, n *int) string {
	switch cut := slices.Contains(p.Cut, module); {
	case n == nil:
		return "-"
	case cut && *n <= 0:
		return "many"
	case *n >= rest.MaxEntries:
		return fmt.Sprintf("%d or more", *n)
	}
	return fmt.Sprint(*n)
}

func (p *PodStatus) wan(status json.RawMessage) {
	var wan struct {
		Interfaces map[string]struct {
			Status string `json:"status"`
		} `json:"interfaces"`
	}
	if json.Unmarshal(status, &wan) != nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(wan.Interfaces)) {
		state := wan.Interfaces[name].Status
		p.Uplinks = append(p.Uplinks, name+" "+state)
		if state == "offline" || state == "disconnecting" {
			p.Problems = append(p.Problems, fmt.Sprintf("uplink %s is %s", name, state))
		}
	}
}

// effect reads what only CNFs of subctl report.
func (p *PodStatus) effect(status json.RawMessage) {
	var effect struct {
		Applied     *bool `json:"applied"`
		Awaiting    bool  `json:"awaiting"`
		Ineffective []struct {
			Collection string `json:"collection"`
			Name       string `json:"name"`
			Reason     string `json:"reason"`
		} `json:"no_effect"`
		Count int `json:"no_effect_count"`
	}
	if json.Unmarshal(status, &effect) != nil {
		return
	}
	if effect.Applied != nil && !*effect.Applied {
		p.Problems = append(p.Problems, "its kernel may not hold the configuration: see its log")
	}
	if effect.Awaiting {
		p.Problems = append(p.Problems,
			"it forwards nothing yet: the controller has not finished its configuration: see subctl sdewan show rules, and the log of the controller")
	}
	for _, o := range effect.Ineffective {
		if p.ineffective++; p.ineffective <= maxIneffective {
			p.Problems = append(
				p.Problems,
				fmt.Sprintf("%.100s %.300s has no effect, or a part of it has none: %.500s", o.Collection, o.Name,
					o.Reason),
			)
		}
	}
	if more := effect.Count - min(len(effect.Ineffective), maxIneffective); len(effect.Ineffective) > 0 && more > 0 {
		p.Problems = append(p.Problems, fmt.Sprintf("objects without effect that are not listed: %d", more))
	}
}

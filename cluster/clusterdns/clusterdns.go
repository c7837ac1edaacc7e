// Package clusterdns makes the DNS servers of a cluster forward names of imported Services to the
// DNS servers of subctl, and undoes it. Distributions keep the configuration of their DNS in
// different places, and some of them restore it: Plan, which is pure, finds out from Facts who
// manages it, and returns the change or, where an object is not for subctl to change, the commands
// for a person. Read, Install, Remove and Repair access the API server.
//
// # The block
//
// In a Corefile, all that is ours is one server block between two comments. Everything else stays
// byte for byte, and removing the block restores the former text, whatever others have changed
// around it. A Corefile in which the block cannot be added or found for certain is left alone: the
// cluster's DNS is worth more than ours. In the configuration of OpenShift's operator ours is the
// server named submariner, and in that of kube-dns an entry that an annotation names.
//
// Objects are updated with the resource version that was read, never by server-side apply: nobody
// owns one key of a ConfigMap in which several programs edit one text.
//
// # Repair
//
// Only ConfigMap kube-system/coredns is written by others: kubeadm, Helm or GitOps tools may
// replace it. The agent of service discovery adds the block again. Its right to update this one
// ConfigMap is limited by an admission policy to exactly that: the new text must be the old one
// with our block appended or replaced, and our block must be what join wrote, except the address.
// So an agent that was taken over cannot redirect other names. In all other places nobody removes
// the block; subctl join repairs it, and State reports it.
package clusterdns

import (
	"net/netip"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/services"
)

// Kind is who manages the configuration of the cluster's DNS, which decides how it is changed.
type Kind string

// The kinds. Join changes the first four; the others are for a person.
const (
	Corefile  Kind = "Corefile"  // ConfigMap kube-system/coredns, key Corefile
	Custom    Kind = "Custom"    // a ConfigMap whose files the Corefile imports
	OpenShift Kind = "OpenShift" // the operator of OpenShift
	KubeDNS   Kind = "KubeDNS"   // the stub domains of kube-dns

	EKSAddon  Kind = "EKSAddon"  // the add-on of EKS, which restores the Corefile
	RKE2      Kind = "RKE2"      // the chart of RKE2, which restores the Corefile
	Restored  Kind = "Restored"  // another program restores the Corefile
	CloudDNS  Kind = "CloudDNS"  // Cloud DNS for GKE, outside of the cluster
	Unmanaged Kind = "Unmanaged" // no DNS servers that subctl knows
)

// State is how the cluster's DNS treats names of imported Services.
type State string

// The states.
const (
	Missing  State = "Missing"  // it does not forward them
	Current  State = "Current"  // it forwards them to the DNS servers of subctl
	Outdated State = "Outdated" // it forwards them to another address, or the block was changed
	Others   State = "Others"   // somebody else has configured the domain
	// Multicluster: CoreDNS answers them itself, by its option of this name.
	Multicluster State = "Multicluster"
	Unknown      State = "Unknown" // the configuration cannot be read
)

// Hook is the plan for the DNS of a cluster.
type Hook struct {
	Kind Kind
	// Manager is who manages the configuration, for messages, such as "CoreDNS of k3s".
	Manager string
	// Where is the object with the configuration, such as "ConfigMap kube-system/coredns".
	Where string
	State State
	// Stanza is what forwards the domain, as the configuration has it.
	Stanza string
	// Ours reports whether the configuration has, or gets, the stanza from subctl, and not from a
	// person.
	Ours bool
	// Changes are to be made by subctl. If there are none, Reason is why; it is empty if nothing is
	// to be changed.
	Changes []Change
	Reason  string
	// Commands are what a person has to do instead.
	Commands string
	// Notes are further remarks, each of which may have several lines.
	Notes []string
}

// Change is an object to be written. Before is nil if it is to be created, and After if it is to
// be deleted.
type Change struct{ Before, After client.Object }

// byHand returns the hook with commands for a person in place of changes.
func (h Hook) byHand(reason, commands string) Hook {
	h.Changes = nil
	h.Reason = reason
	h.Commands = commands
	return h
}

// Removed describes the changes of Undo, one per line.
func (h Hook) Removed() (out []string) {
	for i, where := range h.Places() {
		if h.Changes[i].After == nil {
			out = append(out, "deleted "+where)
		} else {
			out = append(out, "restored "+where)
		}
	}
	return out
}

// Places returns the kind and name of each object that the changes of Undo are about.
func (h Hook) Places() (out []string) {
	for _, c := range h.Changes {
		out = append(out, kindOf(c.Before)+" "+strings.TrimPrefix(client.ObjectKeyFromObject(c.Before).String(), "/"))
	}
	return out
}

const (
	begin = "# submariner-begin"
	end   = "# submariner-end"
	// beginLine is the first line of the block. Blocks are recognized by begin alone.
	beginLine = begin + ": managed by subctl, removed by subctl uninstall"
	// indent is the indentation in the Corefiles of Kubernetes.
	indent = "    "
)

// site is what our block takes from the server block that answers the cluster's pods.
type site struct {
	port    string   // with its colon, or empty
	bind    []string // lines
	plugins []string // those of ourPlugins that the server block has
}

// ourPlugins are the plugins of our block besides forward. A build of CoreDNS may lack those that
// the other server block does not have.
//
// There is no cache: a name would be missing for 5 s after its Service is exported, since that is
// the least time for which CoreDNS keeps that a name does not exist. Our servers answer from
// memory.
var ourPlugins = []string{"errors", "loadbalance"}

// usual is the site if the Corefile is unknown.
var usual = site{port: ":53", plugins: []string{"errors"}}

// block returns our block, without a newline at its end.
func (s site) block(address string) string {
	lines := append([]string{beginLine, services.Domain + s.port + " {"}, indented(s.bind)...)
	for _, name := range s.plugins {
		lines = append(lines, indent+name)
	}
	return strings.Join(append(lines, indent+"forward . "+address, "}", end), "\n")
}

func indented(lines []string) (out []string) {
	for _, l := range lines {
		out = append(out, indent+l)
	}
	return out
}

// isAddress reports whether text is an IP address, and not a placeholder for one.
func isAddress(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && a.Zone() == ""
}

// Package networks discovers the pod and Service networks of a cluster, and its network
// plugin, from the configuration of its components. It changes nothing. Package join
// decides whether the networks can be connected.
package networks

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/cable"
	"subctl/internal/kube"
)

// Discovered is the result of Discover.
type Discovered struct {
	Pods     Found
	Services Found
	// Plugin is the name of the network plugin: see DetectPlugin.
	Plugin string
	// Guess explains why Pods is unreliable; empty if it is reliable.
	Guess string
	// Warnings are further remarks for the user.
	Warnings []string
}

// Found is a list of networks and their source.
type Found struct {
	CIDRs []netip.Prefix // IPv4, without host bits; empty if nothing was found
	From  string         // such as "ConfigMap kube-system/kubeadm-config"
}

// source reads networks from one place. It is not an error if the place has none.
type source func(context.Context, client.Reader) (Found, error)

// Discover discovers the pod and Service networks of a cluster. A network plugin that
// allocates addresses itself takes precedence over Kubernetes, and configuration over
// observation. Sources that do not exist, or that the user may not read, are skipped.
func Discover(ctx context.Context, c client.Client) (*Discovered, error) {
	n := &Discovered{}
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("discovering the pod network: %w", err)
	}
	e, err := evidence(ctx, c, nodes.Items)
	if err != nil {
		return nil, fmt.Errorf("detecting the network plugin: %w", err)
	}
	plugin := DetectPlugin(e)
	n.Plugin, n.Warnings = plugin.Name, plugin.Warnings
	n.Pods, err = first(ctx, c, fromCalico, fromCilium, fromFlannel, fromKindnet, fromControllerManager, fromKubeProxy, kubeadm("podSubnet"))
	if err != nil {
		return nil, fmt.Errorf("discovering the pod network: %w", err)
	}
	if len(n.Pods.CIDRs) == 0 {
		n.Pods = fromNodes(nodes.Items)
		if len(n.Pods.CIDRs) > 0 {
			n.Guess = fmt.Sprintf("the pod network is a guess, %s, from the %s: later nodes may be outside it; specify the network with --clustercidr",
				cable.FormatCIDRs(n.Pods.CIDRs), n.Pods.From)
		}
	}
	n.Services, err = first(ctx, c, fromServiceCIDRs, fromAPIServer, kubeadm("serviceSubnet"), fromRefusal(c))
	if err != nil {
		return nil, fmt.Errorf("discovering the Service network: %w", err)
	}
	n.Pods = n.onlyIPv4("pod", n.Pods)
	n.Services = n.onlyIPv4("Service", n.Services)
	return n, nil
}

func (n *Discovered) warn(format string, args ...any) {
	n.Warnings = append(n.Warnings, fmt.Sprintf(format, args...))
}

func (n *Discovered) onlyIPv4(what string, f Found) Found {
	four, six := ipv4(f.CIDRs)
	if len(six) > 0 {
		n.warn("the IPv6 %s network %s is not connected: this version connects IPv4 networks only", what, cable.FormatCIDRs(six))
	}
	return Found{four, f.From}
}

// first returns the networks of the first source that has any.
func first(ctx context.Context, c client.Reader, sources ...source) (Found, error) {
	for _, ask := range sources {
		f, err := ask(ctx, c)
		if err != nil && !kube.Unreadable(err) {
			return Found{}, err
		}
		if err == nil && len(f.CIDRs) > 0 {
			return f, nil
		}
	}
	return Found{}, nil
}

// Parse returns the networks in a list separated by commas. It skips entries that are not
// networks.
func Parse(list string) []netip.Prefix {
	var out []netip.Prefix
	for s := range strings.SplitSeq(list, ",") {
		if p, err := netip.ParsePrefix(strings.TrimSpace(s)); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// fromNodes guesses the pod network: the smallest network that contains the pod networks of
// all nodes. It finds nothing if a node has no pod network.
func fromNodes(nodes []corev1.Node) Found {
	var all []netip.Prefix
	for _, node := range nodes {
		four, _ := ipv4(Parse(strings.Join(append(node.Spec.PodCIDRs, node.Spec.PodCIDR), ",")))
		if len(four) == 0 {
			return Found{}
		}
		all = append(all, four[0])
	}
	if len(all) == 0 {
		return Found{}
	}
	shown := all
	if len(shown) > 4 {
		shown = shown[:4]
	}
	from := fmt.Sprintf("podCIDRs of the nodes (%s", cable.FormatCIDRs(shown))
	if len(all) > len(shown) {
		from += ",…"
	}
	return Found{[]netip.Prefix{covering(all)}, from + ")"}
}

// covering returns the smallest network that contains every network of list, which must
// not be empty.
func covering(list []netip.Prefix) netip.Prefix {
	out := list[0]
	for _, p := range list[1:] {
		for out.Bits() > 0 && (out.Bits() > p.Bits() || !out.Contains(p.Addr())) {
			out = netip.PrefixFrom(out.Addr(), out.Bits()-1).Masked()
		}
	}
	return out
}

// ipv4 splits networks by family.
func ipv4(list []netip.Prefix) (four, six []netip.Prefix) {
	for _, p := range list {
		if p.Addr().Is4() {
			four = append(four, p.Masked())
		} else {
			six = append(six, p.Masked())
		}
	}
	return four, six
}

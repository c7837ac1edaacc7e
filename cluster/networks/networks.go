// Package networks discovers the pod and Service networks of a cluster, and its network
// plugin, from the configuration of its components. It changes nothing. Package join
// decides whether the networks can be connected.
package networks

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kube"
	"subctl/internal/prefix"
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
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("discovering the pod network: %w", err)
	}
	return discover(ctx, c, nodes.Items, fromRefusal(c))
}

// Inspect is like Discover for users who may only read. It knows nothing about nodes that the user
// may not list.
func Inspect(ctx context.Context, c client.Reader) (*Discovered, error) {
	nodes := &corev1.NodeList{}
	err := c.List(ctx, nodes)
	if err != nil && !kube.Unreadable(err) {
		return nil, fmt.Errorf("discovering the pod network: %w", err)
	}
	n, discoverErr := discover(ctx, c, nodes.Items)
	if discoverErr == nil && err != nil {
		n.warn("this user has no right to list nodes, which can have signs of settings that traffic between clusters " +
			"depends on")
	}
	return n, discoverErr
}

// discover asks further sources for the Service network last.
func discover(ctx context.Context, c client.Reader, nodes []corev1.Node, further ...source) (*Discovered, error) {
	n := &Discovered{}
	e, err := evidence(ctx, c, nodes)
	if err != nil {
		return nil, fmt.Errorf("detecting the network plugin: %w", err)
	}
	plugin := DetectPlugin(e)
	n.Plugin = plugin.Name
	n.Warnings = plugin.Warnings
	n.Pods, err = first(ctx, c, fromCalico, fromCilium, fromFlannel, fromKindnet, fromControllerManager, fromKubeProxy,
		kubeadm("podSubnet"))
	if err != nil {
		return nil, fmt.Errorf("discovering the pod network: %w", err)
	}
	if len(n.Pods.CIDRs) == 0 {
		n.Pods = fromNodes(nodes)
		if len(n.Pods.CIDRs) > 0 {
			n.Guess = fmt.Sprintf(
				"the pod network is a guess, %s, from the %s: later nodes may be outside it; specify the network with --clustercidr",
				prefix.Format(n.Pods.CIDRs), n.Pods.From)
		}
	}
	n.Pods = n.withLaterRanges(nodes)
	sources := append([]source{fromServiceCIDRs, fromAPIServer, kubeadm("serviceSubnet")}, further...)
	n.Services, err = first(ctx, c, sources...)
	if err != nil {
		return nil, fmt.Errorf("discovering the Service network: %w", err)
	}
	n.Pods = n.onlyIPv4("pod", n.Pods)
	n.Services = n.onlyIPv4("Service", n.Services)
	return n, nil
}

// Watched discovers what may change while a cluster is a member, with the rights of a gateway: the
// Service networks of the ServiceCIDR API, and Calico's pools. What does not exist, or may not be
// read, is empty.
func Watched(ctx context.Context, c client.Reader) (pods, services Found, err error) {
	if pods, err = first(ctx, c, fromEnabledPools); err != nil {
		return Found{}, Found{}, fmt.Errorf("reading Calico's IPPools: %w", err)
	}
	if services, err = first(ctx, c, fromServiceCIDRs); err != nil {
		return Found{}, Found{}, fmt.Errorf("reading ServiceCIDRs: %w", err)
	}
	pods.CIDRs, _ = ipv4(pods.CIDRs)
	services.CIDRs, _ = ipv4(services.CIDRs)
	return pods, services, nil
}

func (n *Discovered) warn(format string, args ...any) {
	n.Warnings = append(n.Warnings, fmt.Sprintf(format, args...))
}

func (n *Discovered) onlyIPv4(what string, f Found) Found {
	four, six := ipv4(f.CIDRs)
	if len(six) > 0 {
		n.warn("the IPv6 %s network %s is not connected: this version connects IPv4 networks only", what,
			prefix.Format(six))
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
	return prefix.Valid(strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }))
}

// podCIDRs returns the first IPv4 pod network of each node that has one.
func podCIDRs(nodes []corev1.Node) (out []netip.Prefix) {
	for _, node := range nodes {
		if four, _ := ipv4(Parse(strings.Join(append(node.Spec.PodCIDRs, node.Spec.PodCIDR), ","))); len(four) > 0 {
			out = append(out, four[0])
		}
	}
	return out
}

// fromNodes guesses the pod networks: the smallest networks that contain the pod networks of
// all nodes. It finds nothing if a node has no pod network.
func fromNodes(nodes []corev1.Node) Found {
	all := podCIDRs(nodes)
	if len(all) < len(nodes) || len(all) == 0 {
		return Found{}
	}
	return Found{covering(all), "podCIDRs of the nodes (" + shortened(all) + ")"}
}

// withLaterRanges returns the pod networks, and those of nodes outside them: a cluster gets another
// range when the first one is full. They do not count if no node's is inside: then the network
// plugin does not use the nodes' networks.
func (n *Discovered) withLaterRanges(nodes []corev1.Node) Found {
	inside := func(p netip.Prefix) bool { return prefix.CoverTogether(n.Pods.CIDRs, p) }
	all := podCIDRs(nodes)
	outside := slices.DeleteFunc(slices.Clone(all), inside)
	if n.Plugin == v1alpha1.Calico || len(outside) == 0 || len(outside) == len(all) {
		return n.Pods
	}
	return Found{
		append(slices.Clone(n.Pods.CIDRs), covering(outside)...),
		n.Pods.From + ", and podCIDRs of nodes (" + shortened(outside) + ")",
	}
}

func shortened(list []netip.Prefix) string {
	const most = 4
	if len(list) > most {
		return prefix.Format(list[:most]) + ",…"
	}
	return prefix.Format(list)
}

// guessBits is the prefix length of the largest network that is guessed from the networks of nodes.
// Networks that are further apart belong to different ranges.
const guessBits = 12

// covering returns the smallest networks of at least guessBits that contain every network of list.
func covering(list []netip.Prefix) (out []netip.Prefix) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b netip.Prefix) int { return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits()) })
	for _, p := range list {
		if len(out) > 0 {
			if both := prefix.Around([]netip.Prefix{out[len(out)-1], p}); both.Bits() >= guessBits {
				out[len(out)-1] = both
				continue
			}
		}
		out = append(out, p)
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

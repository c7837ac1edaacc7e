package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Network is what a cluster tells about its own networks.
type Network struct {
	Pods     Found
	Services Found
	// Plugin is the network plugin, in upstream's spelling; "generic" if none that
	// we know was recognised.
	Plugin string
	// Guess says why Pods is not to be relied on; empty if it is.
	Guess string
	// Warnings are what else to know.
	Warnings []string
}

// Found is a list of networks, and who said so.
type Found struct {
	CIDRs []netip.Prefix // IPv4, without host bits; none if nothing was found
	From  string         // such as "ConfigMap kube-system/kubeadm-config"
}

// source is one place that may know a network. Not knowing is no error.
type source func(context.Context, client.Reader) (Found, error)

// Discover finds out the pod and Service networks of a cluster. A network plugin
// that gives addresses itself is asked before Kubernetes, and what an
// administrator configured before what can be observed. A place that does not
// exist, or that we may not look at, is passed over.
func Discover(ctx context.Context, c client.Client) (*Network, error) {
	n := &Network{}
	var err error
	if n.Plugin, err = plugin(ctx, c); err != nil {
		return nil, err
	}
	n.Pods, err = first(ctx, c, fromCalico, fromCilium, fromFlannel, fromKindnet, fromControllerManager, fromKubeProxy, kubeadm("podSubnet"))
	if err != nil {
		return nil, fmt.Errorf("discovering the pod network: %w", err)
	}
	if len(n.Pods.CIDRs) == 0 {
		nodes := &corev1.NodeList{}
		if err := c.List(ctx, nodes); err != nil {
			return nil, fmt.Errorf("discovering the pod network: %w", err)
		}
		n.Pods = fromNodes(nodes.Items)
		if len(n.Pods.CIDRs) > 0 {
			n.Guess = fmt.Sprintf("the pod network is a guess, %s, from the %s: nodes that come later may lie outside it; say it with --clustercidr",
				joinPrefixes(n.Pods.CIDRs), n.Pods.From)
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

func (n *Network) warn(format string, args ...any) {
	n.Warnings = append(n.Warnings, fmt.Sprintf(format, args...))
}

func (n *Network) onlyIPv4(what string, f Found) Found {
	four, six := ipv4(f.CIDRs)
	if len(six) > 0 {
		n.warn("the IPv6 %s network %s is not connected: this version connects IPv4 networks only", what, joinPrefixes(six))
	}
	return Found{four, f.From}
}

// first asks sources in turn until one knows.
func first(ctx context.Context, c client.Reader, sources ...source) (Found, error) {
	for _, ask := range sources {
		f, err := ask(ctx, c)
		if err != nil && !absent(err) {
			return Found{}, err
		}
		if err == nil && len(f.CIDRs) > 0 {
			return f, nil
		}
	}
	return Found{}, nil
}

// absent says that a place to look at is not there, or not for us.
func absent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err)
}

// cidrs returns the networks in a list separated by commas; what is no network
// is passed over, for a list that we do not understand is one we do not know.
func cidrs(list string) []netip.Prefix {
	var out []netip.Prefix
	for s := range strings.SplitSeq(list, ",") {
		if p, err := netip.ParsePrefix(strings.TrimSpace(s)); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// fromNodes guesses the pod network from the ranges of the nodes: the smallest
// network that holds them all, if every node has one.
func fromNodes(nodes []corev1.Node) Found {
	var all []netip.Prefix
	for _, node := range nodes {
		four, _ := ipv4(cidrs(strings.Join(append(node.Spec.PodCIDRs, node.Spec.PodCIDR), ",")))
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
	from := fmt.Sprintf("podCIDRs of the nodes (%s", joinPrefixes(shown))
	if len(all) > len(shown) {
		from += ",…"
	}
	return Found{[]netip.Prefix{covering(all)}, from + ")"}
}

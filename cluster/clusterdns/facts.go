package clusterdns

import (
	"context"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kube"
)

// Facts are what the plan depends on. Objects that do not exist, or are unreadable, are nil.
type Facts struct {
	// Version is the version of the API server, such as "v1.36.3+k3s1".
	Version string
	// Ref names the ConfigMap for the stanza that the user has chosen; nil: none.
	Ref *v1alpha1.ConfigMapRef

	CoreDNS, KubeDNS *appsv1.Deployment
	// Corefile is the ConfigMap of CoreDNS, and Custom the ConfigMap with files that it imports.
	Corefile, Custom *corev1.ConfigMap
	// StubDomains is the ConfigMap of kube-dns.
	StubDomains *corev1.ConfigMap
	// Operator is the DNS of OpenShift's operator, and Chart the HelmChartConfig of RKE2.
	Operator, Chart *unstructured.Unstructured
	// NodeLocal is NodeLocal DNSCache, and NodeLocalConfig its ConfigMap.
	NodeLocal       *appsv1.DaemonSet
	NodeLocalConfig *corev1.ConfigMap
	// Node is one of the nodes, whose labels tell the provider of the cluster.
	Node *corev1.Node
	// Unreadable lists what the user may not read.
	Unreadable []string
}

const (
	system     = metav1.NamespaceSystem
	customName = "coredns-custom"
	// customFile is the name of our file in a ConfigMap with files, without its suffix.
	customFile = "submariner"
	// rke2Name is the name of the chart of RKE2, and rke2Release that of its Deployment and
	// ConfigMap.
	rke2Name    = "rke2-coredns"
	rke2Release = "rke2-coredns-rke2-coredns"
)

// nodeLocalNames are the names of the DaemonSet and the ConfigMap of NodeLocal DNSCache: upstream's
// and Kubespray's.
var nodeLocalNames = []string{"node-local-dns", "nodelocaldns"}

var (
	operatorKind = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1", Kind: "DNS"}
	chartKind    = schema.GroupVersionKind{Group: "helm.cattle.io", Version: "v1", Kind: "HelmChartConfig"}
)

// Read reads the facts. What the user may not read is a fact, too.
func Read(ctx context.Context, c client.Reader, version string, ref *v1alpha1.ConfigMapRef) (Facts, error) {
	r := &reader{ctx: ctx, c: c, facts: Facts{Version: version, Ref: ref}}
	f := &r.facts
	for _, name := range []string{"coredns", rke2Release} {
		if f.Corefile == nil {
			f.CoreDNS = get(r, &appsv1.Deployment{}, "Deployment", system, name)
			f.Corefile = get(r, &corev1.ConfigMap{}, "ConfigMap", system, name)
		}
	}
	f.KubeDNS = get(r, &appsv1.Deployment{}, "Deployment", system, "kube-dns")
	f.StubDomains = get(r, &corev1.ConfigMap{}, "ConfigMap", system, "kube-dns")
	f.Operator = get(r, ofKind(operatorKind), operatorKind.Kind, "", "default")
	f.Chart = get(r, ofKind(chartKind), chartKind.Kind, system, rke2Name)
	for _, name := range nodeLocalNames {
		if f.NodeLocal == nil {
			f.NodeLocal = get(r, &appsv1.DaemonSet{}, "DaemonSet", system, name)
			f.NodeLocalConfig = get(r, &corev1.ConfigMap{}, "ConfigMap", system, name)
		}
	}
	if key, _, found := f.custom(); found {
		f.Custom = get(r, &corev1.ConfigMap{}, "ConfigMap", key.Namespace, key.Name)
	}
	r.node()
	return r.facts, r.err
}

// reader reads facts until an error.
type reader struct {
	ctx   context.Context
	c     client.Reader
	facts Facts
	err   error
}

// get reads an object. It returns nil if it does not exist or is unreadable.
func get[T client.Object](r *reader, into T, kind, namespace, name string) T {
	var none T
	if r.err != nil {
		return none
	}
	found, err := kube.Optional(r.ctx, r.c, into, client.ObjectKey{Namespace: namespace, Name: name})
	if apierrors.IsForbidden(err) {
		r.facts.Unreadable = append(r.facts.Unreadable, kind+" "+path.Join(namespace, name))
		return none
	}
	r.err = err
	return found
}

func (r *reader) node() {
	nodes := &corev1.NodeList{}
	if r.err != nil {
		return
	}
	switch err := r.c.List(r.ctx, nodes, client.Limit(1)); {
	case apierrors.IsForbidden(err):
	case err != nil:
		r.err = err
	case len(nodes.Items) > 0:
		r.facts.Node = &nodes.Items[0]
	}
}

func ofKind(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

// custom returns the ConfigMap with files that the Corefile imports outside of its server blocks,
// and the key for ours; or the ConfigMap that the user has chosen.
func (f *Facts) custom() (cm client.ObjectKey, key string, found bool) {
	if f.Ref != nil && f.Ref.ConfigMapName != "" {
		namespace := f.Ref.Namespace
		if namespace == "" {
			namespace = system
		}
		return client.ObjectKey{Namespace: namespace, Name: f.Ref.ConfigMapName}, customFile + ".server", true
	}
	parsed, err := parse(f.text())
	if err != nil {
		return client.ObjectKey{}, "", false
	}
	for _, pattern := range parsed.imports {
		dir, file := path.Split(pattern)
		suffix, ok := strings.CutPrefix(file, "*")
		if !ok || strings.ContainsAny(suffix, "*?[") || strings.Trim(suffix, ".") == "" {
			continue
		}
		if !path.IsAbs(dir) {
			dir = path.Join("/etc/coredns", dir) // where the Corefile is
		}
		return client.ObjectKey{Namespace: system, Name: f.mounted(path.Clean(dir))}, customFile + suffix, true
	}
	return client.ObjectKey{}, "", false
}

// mounted returns the name of the ConfigMap that is mounted in CoreDNS at a path.
func (f *Facts) mounted(at string) string {
	if f.CoreDNS == nil {
		return customName
	}
	pod := f.CoreDNS.Spec.Template.Spec
	for _, c := range pod.Containers {
		for _, m := range c.VolumeMounts {
			i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool {
				return path.Clean(m.MountPath) == at && v.Name == m.Name && v.ConfigMap != nil
			})
			if i >= 0 {
				return pod.Volumes[i].ConfigMap.Name
			}
		}
	}
	return customName
}

// text returns the Corefile; empty if it is unknown.
func (f *Facts) text() string {
	if f.Corefile == nil {
		return ""
	}
	return f.Corefile.Data[corefileKey]
}

const corefileKey = "Corefile"

// labels returns the labels of the node.
func (f *Facts) labels() map[string]string {
	if f.Node == nil {
		return nil
	}
	return f.Node.Labels
}

// isRKE2 reports whether RKE2 manages CoreDNS by its chart.
func (f *Facts) isRKE2() bool {
	return strings.Contains(f.Version, "+rke2") || f.Corefile != nil && f.Corefile.Name == rke2Release
}

func (f *Facts) isK3s() bool {
	return strings.Contains(f.Version, "+k3s") ||
		f.Corefile != nil && f.Corefile.Annotations["objectset.rio.cattle.io/owner-name"] == "coredns"
}

// isAddon reports whether EKS manages CoreDNS as an add-on: it then owns fields of its objects. The
// label eks.amazonaws.com/component is on every CoreDNS that came with the cluster.
func (f *Facts) isAddon() bool {
	owned := func(o client.Object) bool {
		return slices.ContainsFunc(o.GetManagedFields(),
			func(m metav1.ManagedFieldsEntry) bool { return m.Manager == "eks" })
	}
	return f.Corefile != nil && owned(f.Corefile) || f.CoreDNS != nil && owned(f.CoreDNS)
}

func (f *Facts) isGKE() bool { return strings.Contains(f.Version, "-gke.") }

// runs reports whether a Deployment has pods.
func runs(d *appsv1.Deployment) bool {
	return d != nil && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0)
}

// hasLabel reports whether the node has a label with a prefix.
func (f *Facts) hasLabel(prefix string) bool {
	for l := range f.labels() {
		if strings.HasPrefix(l, prefix) {
			return true
		}
	}
	return false
}

// managed returns the kind and who manages the configuration, for messages.
func (f *Facts) managed() (Kind, string) {
	_, _, custom := f.custom()
	switch {
	case f.Ref != nil && f.Ref.ConfigMapName != "":
		return Custom, "the ConfigMap that was chosen"
	case f.Operator != nil:
		return OpenShift, "the DNS operator of OpenShift"
	case f.isRKE2():
		return RKE2, "the CoreDNS chart of RKE2"
	case f.isGKE() && !runs(f.KubeDNS):
		return CloudDNS, "Cloud DNS for GKE"
	case f.isGKE():
		return KubeDNS, "kube-dns of GKE"
	case f.Corefile == nil && runs(f.KubeDNS):
		return KubeDNS, "kube-dns"
	case f.isAddon():
		return EKSAddon, "the CoreDNS add-on of EKS"
	case custom:
		return Custom, f.coreDNS()
	case f.isK3s():
		return Restored, f.coreDNS()
	case f.Corefile != nil && f.Corefile.Labels["addonmanager.kubernetes.io/mode"] == "Reconcile":
		return Restored, "the addon manager of Kubernetes"
	case f.Corefile != nil:
		return Corefile, f.coreDNS()
	}
	return Unmanaged, "the cluster's DNS"
}

// coreDNS names the CoreDNS of a distribution.
func (f *Facts) coreDNS() string {
	switch {
	case f.isK3s():
		return "CoreDNS of k3s"
	case f.hasLabel("kubernetes.azure.com/"):
		return "CoreDNS of AKS"
	case f.hasLabel("doks.digitalocean.com/"):
		return "CoreDNS of DigitalOcean"
	case strings.Contains(f.Version, "-eks-"):
		return "CoreDNS on EKS, not managed as an add-on"
	}
	return "CoreDNS"
}

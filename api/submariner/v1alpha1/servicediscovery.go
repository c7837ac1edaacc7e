package v1alpha1

import "slices"

// Annotations of ServiceExports.
const (
	// SpreadAnnotation with the value "true" spreads connections over the endpoints of all clusters
	// alike. Without it, each cluster uses its own endpoints while one of them is ready.
	SpreadAnnotation = "submariner.io/spread"
	// DirectAnnotation with the value "true" makes DNS servers answer with the addresses of the
	// exporting clusters (cluster IPs, or with a global network global addresses), instead of the
	// address of the import.
	DirectAnnotation = "submariner.io/direct"
)

// ServiceDiscoverySpec holds the settings of service discovery in a cluster.
type ServiceDiscoverySpec struct {
	// LeaveDNS specifies that subctl does not change the configuration of the cluster's DNS.
	// +optional
	LeaveDNS bool `json:"leaveDNS,omitempty"`
	// ClusterNames specifies whether names of one exporter,
	// <cluster>.<service>.<namespace>.svc.clusterset.local, stand for its Service, as in
	// Submariner. The API reserves these names.
	// +optional
	ClusterNames bool `json:"clusterNames,omitempty"`
	// Direct is DirectAnnotation for all Services that this cluster imports.
	// +optional
	Direct bool `json:"direct,omitempty"`
	// ExportNamespaces lists the namespaces whose Services this cluster may export, as its grant
	// does: names, or prefixes that end in "*". Empty: all but kube-*, openshift-* and those of
	// subctl.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	ExportNamespaces []string `json:"exportNamespaces,omitempty"`
	// Imports restricts which clusters this cluster imports Services from. A Service that no rule
	// selects is imported from all clusters. Of rules that select a Service, each allows the
	// clusters that it lists.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Imports []ImportRule `json:"imports,omitempty"`
}

// NamedNamespaces returns the patterns of namespaces that the settings name, to export from them or
// to import into them. Others of Kubernetes, OpenShift and subctl take no part.
func (s ServiceDiscoverySpec) NamedNamespaces() []string {
	out := slices.Clone(s.ExportNamespaces)
	for _, rule := range s.Imports {
		out = append(out, rule.Namespaces...)
	}
	return out
}

// ImportRule lists the clusters from which some Services are imported.
type ImportRule struct {
	// Namespaces selects namespaces: names, or prefixes that end in "*".
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Namespaces []string `json:"namespaces"`
	// Services selects Services in them by name or prefix; empty: all.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Services []string `json:"services,omitempty"`
	// Clusters lists IDs of clusters; empty: the Services are not imported at all.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Clusters []string `json:"clusters,omitempty"`
}

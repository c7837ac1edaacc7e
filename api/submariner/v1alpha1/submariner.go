package v1alpha1

import (
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// Submariner describes how a cluster is joined. All other objects that join
// installs are computed from it, and the agents watch it. When it is deleted while it
// has UninstallFinalizer, every agent cleans its node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=submariners,singular=submariner
// +kubebuilder:printcolumn:name="Cluster ID",type=string,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Service CIDR",type=string,JSONPath=`.spec.serviceCIDR`
// +kubebuilder:printcolumn:name="Cluster CIDR",type=string,JSONPath=`.spec.clusterCIDR`
// +kubebuilder:printcolumn:name="Global CIDR",type=string,JSONPath=`.spec.globalCIDR`,priority=1
// +kubebuilder:printcolumn:name="NAT",type=boolean,JSONPath=`.spec.natEnabled`
// +kubebuilder:printcolumn:name="Network Plugin",type=string,JSONPath=`.status.networkPlugin`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Submariner struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SubmarinerSpec   `json:"spec"`
	Status SubmarinerStatus `json:"status,omitempty"`
}

// UninstallFinalizer is the finalizer that keeps a deleted Submariner until every node is clean.
const UninstallFinalizer = "submariner.io/clean-nodes"

// Annotations.
const (
	// ClusterLabelsAnnotation, on a cluster's own Cluster, holds the labels that its active
	// gateway applied last, as k=v,k=v. On a Submariner that an earlier version of subctl
	// wrote, it stands for SubmarinerSpec.ClusterLabels.
	ClusterLabelsAnnotation = "submariner.io/cluster-labels"
	// PublicKeyAnnotation, on a Submariner, holds the cluster's X25519 public key, in base64.
	// The active gateway transfers it to the Cluster object.
	PublicKeyAnnotation = "submariner.io/public-key"
	// DiscoveredAnnotation, on a Submariner, lists the fields of its spec whose networks join has
	// discovered, and the user has not chosen, separated by commas. They follow what is found when
	// joining again.
	DiscoveredAnnotation = "submariner.io/discovered-networks"
)

// The fields in DiscoveredAnnotation.
const (
	ClusterCIDRField = "clusterCIDR"
	ServiceCIDRField = "serviceCIDR"
)

// Discovered reports whether the networks in a field were discovered: see DiscoveredAnnotation.
func (s *Submariner) Discovered(field string) bool {
	return slices.Contains(strings.Split(s.Annotations[DiscoveredAnnotation], ","), field)
}

// SubmarinerSpec holds the settings with which a cluster is joined.
type SubmarinerSpec struct {
	// Broker has no effect; upstream requires it to be present. It is empty, or "k8s" as in
	// manifests of upstream.
	// +kubebuilder:validation:XValidation:rule="self in ['', 'k8s']",message="it has no effect: leave it empty; the broker is brokerK8sApiServer"
	Broker string `json:"broker"`
	// BrokerK8sApiServer is the address of the broker's API server, as host:port without scheme.
	BrokerK8sApiServer string `json:"brokerK8sApiServer"` // upstream's name
	// BrokerK8sApiServerToken must be empty: the token is in BrokerK8sSecret.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == ''",message="it has no effect: the token is in the Secret that brokerK8sSecret names"
	BrokerK8sApiServerToken string `json:"brokerK8sApiServerToken,omitempty"`
	// BrokerK8sCA holds CA certificates of the broker (PEM), in base64. The agents trust them in
	// addition to those in the Secret BrokerK8sSecret and those of the system.
	// +optional
	BrokerK8sCA string `json:"brokerK8sCA,omitempty"`
	// BrokerK8sInsecure disables the verification of the broker's certificate.
	// +optional
	BrokerK8sInsecure bool `json:"brokerK8sInsecure,omitempty"`
	// BrokerK8sSecret names the Secret with this cluster's token for the broker.
	// +optional
	BrokerK8sSecret string `json:"brokerK8sSecret,omitempty"`
	// BrokerK8sTLSServerName is the name in the certificate of the broker's API server; empty: the
	// host in BrokerK8sApiServer.
	// +optional
	BrokerK8sTLSServerName string `json:"brokerK8sTLSServerName,omitempty"`
	// BrokerK8sHTTPSProxy is the proxy through which the gateways reach the broker, such as
	// http://proxy.example:3128, without user and password: these are in the Secret
	// BrokerK8sSecret, as USER:PASSWORD with the key https-proxy-user. "none": the gateways use no
	// proxy. Empty: they use what the environment of their pods specifies, usually none. Nothing
	// else is reached through it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self in ['', 'none'] || self.matches('^(http|https|socks5|socks5h)://[^@/?#]+$')",message="use http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT without user and password, or none"
	BrokerK8sHTTPSProxy string `json:"brokerK8sHTTPSProxy,omitempty"`
	// BrokerK8sNoProxy lists names, addresses and networks that are reached without that proxy, as
	// in the environment variable NO_PROXY. The cluster's own networks and API servers, and the
	// gateway's own node, always are.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	BrokerK8sNoProxy []string `json:"brokerK8sNoProxy,omitempty"`
	// BrokerK8sRemoteNamespace is the broker's namespace of the clusterset "default".
	BrokerK8sRemoteNamespace string `json:"brokerK8sRemoteNamespace"`

	// CeIPSecDebug is the setting "debug" of the driver ipsec.
	CeIPSecDebug bool `json:"ceIPSecDebug"`
	// CeIPSecForceUDPEncaps is the setting "encapsulation: yes" of the driver ipsec.
	// +optional
	CeIPSecForceUDPEncaps bool `json:"ceIPSecForceUDPEncaps,omitempty"`
	// CeIPSecIKEPort must be 0: IKE and ESP in UDP use the same port, CeIPSecNATTPort.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == 0",message="it has no effect: IKE uses the port ceIPSecNATTPort"
	CeIPSecIKEPort int `json:"ceIPSecIKEPort,omitempty"`
	// CeIPSecNATTPort is the UDP port of IPsec; 0 means 4500.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	CeIPSecNATTPort int `json:"ceIPSecNATTPort,omitempty"`
	// CeIPSecPSK must be empty: the key is in CeIPSecPSKSecret.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == ''",message="it has no effect: the key is in the Secret that ceIPSecPSKSecret names"
	CeIPSecPSK string `json:"ceIPSecPSK,omitempty"`
	// CeIPSecPSKSecret names the Secret with the pre-shared key that all clusters of the broker
	// share.
	// +optional
	CeIPSecPSKSecret string `json:"ceIPSecPSKSecret,omitempty"`
	// CeIPSecPreferredServer specifies whether the gateways wait for others to start the IPsec
	// negotiation.
	// +optional
	CeIPSecPreferredServer bool `json:"ceIPSecPreferredServer,omitempty"`

	// CableDriver is the cluster's default driver, used where no policy decides. If it is
	// empty, the default is the first of CableDrivers and CombinedCableDrivers, or else vxlan.
	// +optional
	CableDriver string `json:"cableDriver,omitempty"`
	// CableDrivers lists the drivers to offer as separate cables. If it and
	// CombinedCableDrivers are empty, the cluster offers every driver that its gateways can run.
	// +optional
	CableDrivers []string `json:"cableDrivers,omitempty"`
	// CombinedCableDrivers lists the drivers of one combined cable, such as vxlan and ipsec.
	// +optional
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || (self.exists(d, d.trim().lowerAscii() == 'vxlan') && self.exists(d, d.trim().lowerAscii() in ['wireguard', 'ipsec', 'libreswan']))",message="a combined cable is one driver inside another: vxlan and wireguard, or vxlan and ipsec"
	CombinedCableDrivers []string `json:"combinedCableDrivers,omitempty"`
	// Encryption is "required" if this cluster must never be connected to another cluster
	// without encryption, whatever the cable policies decide. Both clusters of a pair respect it.
	// +optional
	Encryption submarinerv1.Encryption `json:"encryption,omitempty"`
	// PoliciesFrom specifies whose cable policies apply. It is the broker's setting at the time
	// of the join: Broker.spec.policiesFrom.
	// +optional
	PoliciesFrom PoliciesFrom `json:"policiesFrom,omitempty"`
	// CableDriverCustomConfig names a ConfigMap with settings of the cable drivers.
	// +optional
	CableDriverCustomConfig *ConfigMapRef `json:"cableDriverCustomConfig,omitempty"`
	// CableDriverCustomConfigPath is the directory at which the pods of gateways mount that
	// ConfigMap, which they do if it is set, from the next subctl join on. The gateways read the
	// settings through the API server in any case, so that a change takes effect at once.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self == '' || (self.matches('^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$') && !self.matches('^/(bin|dev|lib|lib64|proc|run|sbin|sys|tmp|usr|var/run)(/|$)') && self != '/etc' && self != '/var')",message="it must be an absolute path in the gateways' pods, such as /etc/submariner/cable-driver-config, that hides none of their own files"
	CableDriverCustomConfigPath string `json:"cableDriverCustomConfigPath,omitempty"`

	// ClusterCIDR lists the pod networks, separated by commas.
	ClusterCIDR string `json:"clusterCIDR"`
	// ClusterID is the ID of the cluster, unique among all clusters of the broker. It cannot
	// be changed: uninstall, and join again under the new ID.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the cluster ID of a joined cluster cannot be changed: run subctl uninstall, then subctl join with the new ID"
	ClusterID string `json:"clusterID"`
	// ClusterLabels are labels of the Cluster object, which the selectors of cable policies
	// match. Labels that begin with submariner-io/ or submariner.io/ are reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('submariner-io/') && !k.startsWith('submariner.io/'))",message="labels that begin with submariner-io/ or submariner.io/ are reserved: choose another name"
	ClusterLabels map[string]string `json:"clusterLabels,omitempty"`
	// ClusterSets lists the clustersets that the cluster has joined; empty means "default". The
	// administrator of the broker may have changed them since: the Cluster object of the cluster
	// has the present ones.
	// +optional
	ClusterSets []string `json:"clusterSets,omitempty"`
	// ClustersetIPCIDR must be empty: imported Services have addresses of the Service network.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == ''",message="it has no effect: imported Services have addresses of the Service network"
	ClustersetIPCIDR string `json:"clustersetIPCIDR,omitempty"`
	// ClustersetIPEnabled must be false: imported Services always have an address.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self",message="it has no effect: imported Services always have an address"
	ClustersetIPEnabled bool `json:"clustersetIPEnabled,omitempty"`
	// ColorCodes is "blue", which upstream's tools expect, or empty.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self in ['', 'blue']",message="it has no effect: use blue, which upstream's tools expect"
	ColorCodes string `json:"colorCodes,omitempty"`
	// ConnectionHealthCheck specifies how cables are probed.
	// +optional
	ConnectionHealthCheck *HealthCheckSpec `json:"connectionHealthCheck,omitempty"`
	// CoreDNSCustomConfig names the ConfigMap, usually kube-system/coredns-custom, whose key
	// submariner.server holds the stanza of clusterset.local; not set: join finds out where the
	// configuration of the cluster's DNS is.
	// +optional
	CoreDNSCustomConfig *ConfigMapRef `json:"coreDNSCustomConfig,omitempty"`
	// CustomDomains must be empty: names of imported Services end in clusterset.local.
	// +optional
	// +kubebuilder:validation:XValidation:rule="size(self) == 0",message="it has no effect: names of imported Services end in clusterset.local"
	CustomDomains []string `json:"customDomains,omitempty"`
	// Debug specifies whether the agents log at level debug. It needs no new pods.
	Debug bool `json:"debug"`
	// Gateways is the number of gateway nodes that join was asked for. If there are fewer, because
	// their Nodes are deleted, have lost the label submariner.io/gateway=true, or have failed,
	// other nodes get the label. 0: no node gets it; not set: an earlier version of subctl has
	// joined the cluster.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	Gateways *int32 `json:"gateways,omitempty"`
	// GatewayNodes are the nodes that join was asked to label. They are not replaced while they
	// exist.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	GatewayNodes []string `json:"gatewayNodes,omitempty"`
	// GlobalCIDR is the cluster's network of globally unique addresses, in CIDR notation, which
	// join allocates on a broker with globalnet. Other clusters then reach this network only, and
	// the networks in ClusterCIDR and ServiceCIDR may be those of other clusters, too.
	// +optional
	GlobalCIDR string `json:"globalCIDR,omitempty"`
	// HaltOnCertificateError is true, for upstream's tools: the agents never use a broker whose
	// certificate is not valid, except with BrokerK8sInsecure.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self",message="the agents always stop at a broker whose certificate is not valid: omit it, or set brokerK8sInsecure to disable the verification"
	HaltOnCertificateError bool `json:"haltOnCertificateError,omitempty"`
	// ImageOverrides maps components, for example submariner-gateway, to images.
	// +optional
	ImageOverrides map[string]string `json:"imageOverrides,omitempty"`
	// AirGappedDeployment must be false: the agents never ask services on the Internet, so every
	// cluster may be without a connection to it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self",message="it has no effect: the agents never ask services on the Internet; omit it"
	AirGappedDeployment bool `json:"airGappedDeployment,omitempty"`
	// LoadBalancerEnabled must be false: the agents create no Service for the gateways.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self",message="this version does not publish gateways through a load balancer: annotate the gateway nodes with gateway.submariner.io/public-ip"
	LoadBalancerEnabled bool `json:"loadBalancerEnabled,omitempty"`
	// MultiActiveGatewayEnabled specifies whether every gateway node is active. Otherwise one is,
	// and the others are passive. It needs no new pods.
	// +optional
	MultiActiveGatewayEnabled bool `json:"multiActiveGatewayEnabled,omitempty"`
	// Namespace is the namespace of all objects of this cluster, submariner-operator, or empty.
	// +kubebuilder:validation:XValidation:rule="self in ['', 'submariner-operator']",message="the agents run only in the namespace submariner-operator"
	Namespace string `json:"namespace"`
	// NatEnabled specifies whether the gateways expect NAT between clusters.
	NatEnabled bool `json:"natEnabled"` // upstream's name
	// NodeSelector must be empty: gateways run on the nodes with the label
	// submariner.io/gateway=true, and route agents on all nodes.
	// +optional
	// +kubebuilder:validation:XValidation:rule="size(self) == 0",message="gateways run on the nodes with the label submariner.io/gateway=true, and route agents on all nodes"
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Repository is the repository of the agents' image, without its name; empty: the
	// repository of this version.
	// +optional
	Repository string `json:"repository,omitempty"`
	// ServiceCIDR lists the Service networks, separated by commas.
	ServiceCIDR string `json:"serviceCIDR"`
	// ServiceDiscoveryEnabled specifies whether Services are exported to other clusters, and
	// imported from them, by name.
	// +optional
	ServiceDiscoveryEnabled bool `json:"serviceDiscoveryEnabled,omitempty"`
	// ServiceDiscovery holds the settings of service discovery.
	// +optional
	ServiceDiscovery *ServiceDiscoverySpec `json:"serviceDiscovery,omitempty"`
	// Tolerations are the tolerations of gateway pods; empty: they tolerate every taint.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Version is the version of the agents' image.
	// +optional
	Version string `json:"version,omitempty"`
}

// ConditionGateways is the type of the condition of a Submariner that is False if fewer gateway
// nodes work than Submariner.spec.gateways specifies.
const ConditionGateways = "GatewaysAvailable"

// ConfigMapRef names a ConfigMap.
type ConfigMapRef struct {
	ConfigMapName string `json:"configMapName,omitempty"`
	Namespace     string `json:"namespace,omitempty"`
}

// SubmarinerStatus describes the joined cluster. The speaker writes it, except the network plugin,
// which join writes.
type SubmarinerStatus struct {
	// ClusterID is Submariner.spec.clusterID. Upstream's tools expect it to be present.
	// +optional
	ClusterID string `json:"clusterID"`
	// +optional
	ClusterCIDR string `json:"clusterCIDR,omitempty"`
	// +optional
	ServiceCIDR string `json:"serviceCIDR,omitempty"`
	// +optional
	GlobalCIDR string `json:"globalCIDR,omitempty"`
	// NetworkPlugin is the network plugin (CNI) that join detected, such as "flannel";
	// "generic" if join does not know it.
	// +optional
	NetworkPlugin string `json:"networkPlugin,omitempty"`
	// NatEnabled is Submariner.spec.natEnabled. Upstream's tools expect it to be present, even if
	// false.
	// +optional
	// +kubebuilder:default=false
	NatEnabled bool `json:"natEnabled"` // upstream's name
	// +optional
	Version string `json:"version,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BrokerHost returns the host in BrokerK8sApiServer: a name or an address.
func (s SubmarinerSpec) BrokerHost() string { return HostOf(s.BrokerK8sApiServer) }

// HostOf returns the host in the address of an API server: a URL, or a host, with or without a port
// and a path.
func HostOf(server string) string {
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// GetConditions returns the conditions in the status.
func (s *Submariner) GetConditions() []metav1.Condition { return s.Status.Conditions }

// ClusterLabels returns the labels that the user gave to the cluster, by name.
func (s *Submariner) ClusterLabels() map[string]string {
	if s.Spec.ClusterLabels == nil {
		return submarinerv1.ParseLabels(s.Annotations[ClusterLabelsAnnotation])
	}
	return s.Spec.ClusterLabels
}

// SubmarinerList is a list of Submariners.
//
// +kubebuilder:object:root=true
type SubmarinerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Submariner `json:"items"`
}

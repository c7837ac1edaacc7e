package v1

// Names that Submariner's tools look for.
const (
	// ClusterIDLabel is on every object that was synced between clusters and
	// names the cluster that owns it. An object without it is local.
	ClusterIDLabel = "submariner-io/clusterID"
	// BrokerID is the ClusterIDLabel of copies of what was made on the broker itself.
	// No cluster can be called so: a cluster ID has no capital letters.
	BrokerID = "BROKER"
	// ClusterSetLabel is on every broker namespace and names its clusterset. On a cable
	// policy it says for which clusterset alone that is.
	ClusterSetLabel = "submariner.io/clusterset"
	// GatewayNodeLabel with value "true" makes a node a gateway.
	GatewayNodeLabel = "submariner.io/gateway"
	// PublicIPAnnotation is an annotation of a gateway node, or a label, that says where
	// it can be reached from outside: "ipv4:192.0.2.7" or "dns:gw.example.com".
	PublicIPAnnotation = "gateway.submariner.io/public-ip"

	// OperatorNamespace is where everything of a joined cluster lives.
	OperatorNamespace = "submariner-operator"
	// BrokerNamespace is the broker's namespace of the clusterset "default".
	BrokerNamespace = "submariner-k8s-broker"
	// DefaultClusterSet is the clusterset of clusters that name none.
	DefaultClusterSet = "default"

	// GatewayLease is the lease that the one active gateway holds.
	GatewayLease = "submariner-gateway-lock"
)

// Keys of Endpoint.spec.backend_config. Drivers have keys of their own.
const (
	// BackendUDPPort is the UDP port of IPsec (upstream: of the one cable).
	BackendUDPPort          = "udp-port"
	BackendNATDiscoveryPort = "natt-discovery-port"
	// BackendPreferredServer is "true" if the gateway waits for others to begin to negotiate
	// IPsec.
	BackendPreferredServer = "preferred-server"
	// BackendDrivers lists the drivers that the gateway offers, separated by commas.
	// Where it is, it alone says so; without it, a gateway offers Endpoint.spec.backend alone.
	BackendDrivers = "cable-drivers"
)

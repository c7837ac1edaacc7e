package v1

// Names and labels, most of which Submariner's tools use too.
const (
	// ClusterIDLabel is on every object that is copied between clusters. Its value is the
	// ID of the cluster that owns the object. An object without the label is local.
	ClusterIDLabel = "submariner-io/clusterID"
	// BrokerID is the value of ClusterIDLabel on copies of objects that were created on the
	// broker itself. It is not a valid cluster ID, which has no capital letters.
	BrokerID = "BROKER"
	// ClusterSetLabel is on every broker namespace. Its value is the name of the clusterset.
	// On a cable policy, it restricts the policy to that clusterset.
	ClusterSetLabel = "submariner.io/clusterset"
	// GatewayNodeLabel with value "true" makes a node a gateway.
	GatewayNodeLabel = "submariner.io/gateway"
	// PublicIPAnnotation is an annotation, or a label, of a gateway node. It specifies the
	// node's public address: "ipv4:192.0.2.7" or "dns:gw.example.com", or as a label the bare address.
	PublicIPAnnotation = "gateway.submariner.io/public-ip"

	// OperatorNamespace is the namespace of all objects of a joined cluster.
	OperatorNamespace = "submariner-operator"
	// BrokerNamespace is the broker's namespace of the clusterset "default".
	BrokerNamespace = "submariner-k8s-broker"
	// DefaultClusterSet is the clusterset of clusters that do not specify one.
	DefaultClusterSet = "default"

	// GatewayLease is the name of the Lease that the active gateway holds.
	GatewayLease = "submariner-gateway-lock"
)

// Keys of Endpoint.spec.backend_config. Drivers define further keys.
const (
	// BackendUDPPort is the UDP port of IPsec (upstream: of the cable, whatever its driver).
	BackendUDPPort = "udp-port"
	// BackendNATDiscoveryPort is the UDP port of path discovery.
	BackendNATDiscoveryPort = "natt-discovery-port"
	// BackendPreferredServer is "true" if the gateway waits for other gateways to start the
	// IPsec negotiation.
	BackendPreferredServer = "preferred-server"
	// BackendDrivers lists the drivers that the gateway offers, separated by commas.
	// Without it, the gateway offers only Endpoint.spec.backend.
	BackendDrivers = "cable-drivers"
)

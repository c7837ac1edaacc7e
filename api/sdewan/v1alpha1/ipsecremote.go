package v1alpha1

// IpsecRemote is what IpsecSite and IpsecHost have in common: another end of tunnels.
type IpsecRemote struct {
	// Name has no effect: on the CNF, the rule has the object's name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Type is "VTI-based" for tunnels that routes select, on OpenWrt, or anything else for tunnels
	// that addresses select.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Type string `json:"type,omitempty"`
	// Remote is the address or DNS name of the other end; "%any", 0.0.0.0 and :: accept connections
	// from any address.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self in ['%any', 'any', '0.0.0.0', '::'] || isIP(self) || self.matches('^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$')`,message="must be an IP address, a DNS name, or \"%any\" for any address"
	Remote string `json:"remote"`
	// Auth is how both ends prove who they are: psk (pre_shared_key) or pubkey (certificates).
	// +kubebuilder:validation:Enum=psk;pubkey
	Auth string `json:"authentication_method"`
	// PreSharedKey is the secret of method psk. Who may read this object can read it.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	PreSharedKey string `json:"pre_shared_key,omitempty"`
	// LocalCert is for method pubkey: this CNF's certificate, PEM in base64; several are joined by
	// "___".
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	LocalCert string `json:"local_public_cert,omitempty"`
	// LocalKey is for method pubkey: the private key of the certificate, PEM in base64. Who may
	// read this object can read it.
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	LocalKey string `json:"local_private_cert,omitempty"`
	// CA is for method pubkey: the certificates that verify the other end, PEM in base64; several
	// are joined by "___".
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	CA string `json:"shared_ca,omitempty"`
	// LocalID is the identity of this CNF. The default is its address.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	LocalID string `json:"local_identifier,omitempty"`
	// RemoteID is the identity of the other end. The default is the address in remote. A
	// pre_shared_key for a remote of any address ("%any") needs it, unless no other connection of
	// the CNF has another key: without it, the key proves any identity.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RemoteID string `json:"remote_identifier,omitempty"`
	// Proposals are names of IpsecProposals for the key exchange, the preferred one first.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	Proposals []ObjectName `json:"crypto_proposal,omitempty"`
	// ForceProposal is 1 to refuse all other algorithms.
	// +optional
	ForceProposal Switch `json:"force_crypto_proposal,omitempty"`
}

// IpsecConnection is what the connections of IpsecSite and IpsecHost have in common.
//
// +kubebuilder:validation:XValidation:rule=`has(self.name) && self.name != "" || has(self.connection_name) && self.connection_name != ""`,message="name (or connection_name) is required"
// +kubebuilder:validation:XValidation:rule=`!has(self.name) || !has(self.connection_name) || self.name == "" || self.connection_name == "" || self.name == self.connection_name`,message="name and connection_name mean the same: write one of them"
// +kubebuilder:validation:XValidation:rule=`!has(self.type) || !has(self.conn_type) || self.type == "" || self.conn_type == "" || self.type == self.conn_type`,message="type and conn_type mean the same: write one of them"
type IpsecConnection struct {
	// Name is unique among the connections of the object.
	// +optional
	Name ConnectionName `json:"name,omitempty"`
	// ConnectionName is the same as name.
	// +optional
	ConnectionName ConnectionName `json:"connection_name,omitempty"`
	// Type is tunnel or transport. The default is tunnel.
	// +optional
	// +kubebuilder:validation:Enum="";tunnel;transport
	Type string `json:"type,omitempty"`
	// ConnType is the same as type.
	// +optional
	// +kubebuilder:validation:Enum="";tunnel;transport
	ConnType string `json:"conn_type,omitempty"`
	// Mode is start (connect at once), route (connect when there is traffic) or add (wait for the
	// other end).
	// +kubebuilder:validation:Enum=start;add;route
	Mode string `json:"mode"`
	// LocalUpdown is for OpenWrt: a program on the CNF that is run when the connection is up or
	// down.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	LocalUpdown string `json:"local_updown,omitempty"`
	// LocalFirewall is yes to let the connection's packets pass the firewall.
	// +optional
	// +kubebuilder:validation:Enum="";"yes";"no"
	LocalFirewall string `json:"local_firewall,omitempty"`
	// RemoteSubnet lists the networks behind the other end, separated by commas.
	// +optional
	RemoteSubnet Subnets `json:"remote_subnet,omitempty"`
	// RemoteSourceIP is the range from which the other end gets an address, such as
	// 192.0.2.10-192.0.2.20, or a network.
	// +optional
	RemoteSourceIP SourceIPs `json:"remote_sourceip,omitempty"`
	// RemoteUpdown is for OpenWrt.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RemoteUpdown string `json:"remote_updown,omitempty"`
	// RemoteFirewall is for OpenWrt.
	// +optional
	// +kubebuilder:validation:Enum="";"yes";"no"
	RemoteFirewall string `json:"remote_firewall,omitempty"`
	// Proposals are names of IpsecProposals for the tunnel, the preferred one first.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	Proposals []ObjectName `json:"crypto_proposal,omitempty"`
	// Mark is the mark of packets that belong to the tunnel, if its type is VTI-based.
	// +optional
	Mark Mark `json:"mark,omitempty"`
	// IfID is the identifier of the tunnel's device.
	// +optional
	IfID Mark `json:"if_id,omitempty"`
}

// ConnectionName is the name of a connection.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')`,message="must be letters, digits, '-', '_' and '.'"
type ConnectionName string

// Subnets is a list of addresses or networks, separated by commas. The schema checks IPv6 addresses
// only roughly.
//
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:XValidation:rule=`self.matches('^ *(((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])([.](25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}(/(3[0-2]|[12]?[0-9]))?|[0-9A-Fa-f:]*:[0-9A-Fa-f:]+(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?)( *, *((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])([.](25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}(/(3[0-2]|[12]?[0-9]))?|[0-9A-Fa-f:]*:[0-9A-Fa-f:]+(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?))*)? *$')`,message="must be networks such as 192.0.2.0/24, or addresses, separated by commas"
type Subnets string

// SourceIPs is a list of addresses, networks or ranges of addresses, separated by commas, or
// %config. The schema checks IPv6 addresses only roughly.
//
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:XValidation:rule=`self.matches('^ *((%config[46]?|((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])([.](25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3} *- *(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])([.](25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}|[0-9A-Fa-f:]*:[0-9A-Fa-f:]+ *- *[0-9A-Fa-f:]*:[0-9A-Fa-f:]+)|((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])([.](25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}(/(3[0-2]|[12]?[0-9]))?|[0-9A-Fa-f:]*:[0-9A-Fa-f:]+(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?))( *, *(%config[46]?|((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])([.](25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3} *- *(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])([.](25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}|[0-9A-Fa-f:]*:[0-9A-Fa-f:]+ *- *[0-9A-Fa-f:]*:[0-9A-Fa-f:]+)|((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])([.](25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}(/(3[0-2]|[12]?[0-9]))?|[0-9A-Fa-f:]*:[0-9A-Fa-f:]+(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?)))*)? *$')`,message="must be an address, a network such as 192.0.2.0/24, or a range such as 192.0.2.10-192.0.2.20; or \"%config\" to ask the other end for one"
type SourceIPs string

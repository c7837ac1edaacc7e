package dataplane

// GlobalnetTable is the table of a gateway that translates between the addresses of this cluster
// and its global addresses: see globalnet/rules.go. When an element of these maps goes, so do the
// connections that it translated.
var GlobalnetTable = Nftable{"ip", "submariner-gateway-globalnet"}

// The maps of GlobalnetTable that connections depend on.
const (
	GlobalnetOwners    = "globals"            // pod : its own global address
	GlobalnetAnswering = "answering"          // global address : the address of the gateway that answers pings
	GlobalnetPorts     = "ports"              // global address . protocol . port of a Service : goto a chain
	GlobalnetEndpoints = "endpoints"          // the same . slot : address . port of an endpoint
	GlobalnetSelected  = "selected-addresses" // pod . slot : global address
	GlobalnetShared    = "shared-addresses"   // slot : global address
)

package cmd

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"subctl/cable/drivers"
	"subctl/cluster"
)

// addDriverFlags declares the flags about cables: which there are, and how they are
// set up.
func (o *joinOptions) addDriverFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.CableDriver, "cable-driver", "", "driver where no cable policy decides: "+drivers.Names()+
		" (default: the broker's choice, else "+drivers.Default+")")
	f.StringSliceVar(&o.CableDrivers, "cable-drivers", nil, "cable drivers to offer for cable policies to choose from (default: all that the gateways can run)")
	f.StringSliceVar(&o.CombinedCableDrivers, "combined-cable-drivers", nil, "two drivers to offer as one cable, such as vxlan,ipsec: VXLAN inside IPsec")
	f.StringVar(&o.CableDriverConfig, "cable-driver-config", "", "ConfigMap with settings of the cable drivers: NAME, in namespace "+cluster.Namespace)
	f.StringVar(&o.CableDriverConfigPath, "cable-driver-config-path", "", "where that ConfigMap is mounted in the gateway's pods (default "+cluster.DefaultConfigPath+")")
	f.IntVar(&o.NATTPort, "nattport", o.NATTPort, "UDP port of IPsec")
	f.BoolVar(&o.ForceUDPEncaps, "force-udp-encaps", false, "put IPsec inside UDP even where no address is translated")
	f.BoolVar(&o.IPsecDebug, "ipsec-debug", false, "log what IPsec negotiates")
	f.BoolVar(&o.PreferredServer, "preferred-server", false, "let the gateways of other clusters begin to negotiate IPsec, unless they are to wait too")
	names := func(context.Context) ([]string, error) { return strings.Split(drivers.Names(), ", "), nil }
	complete(c, "cable-driver", names)
	complete(c, "cable-drivers", names)
}

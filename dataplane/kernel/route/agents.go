//go:build linux

package route

import (
	"subctl/dataplane"
	"subctl/dataplane/kernel/link"
	"subctl/dataplane/kernel/netlink"
)

// ReadAgents reads from the rules and routes which agents have set up the node, and whether they
// are of a version before FirstTable.
func ReadAgents(f *dataplane.Facts) error {
	conn, err := netlink.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	rules, err := every(conn)
	if err != nil {
		return err
	}
	f.NoCableRule = true
	for _, r := range rules {
		if r.protocol != dataplane.GatewayOwner.Protocol {
			continue
		}
		if r.table == dataplane.CableTable || r.table == dataplane.FormerCableTable {
			f.NoCableRule = false
		}
		if r.table == dataplane.FormerIntraTable && r.priority == dataplane.ArrivalPriority {
			f.FormerRules = true
		}
	}
	r := New(dataplane.RouteOwner, conn, link.New(link.Config{Owner: dataplane.RouteOwner, Conn: conn}))
	return routes{r}.each(dataplane.FormerIntraTable, func([]byte, dataplane.Object) { f.FormerRoutes = true })
}

package rest

import "strconv"

// MaxPriority is the greatest priority of a policy rule that comes before the main table, whose
// rule has the next one (ip-rule(8)).
const MaxPriority = 32765

func (c *checker) route(o *Route) {
	c.required("dst", o.Dst)
	if o.Dst != "default" {
		c.network("dst", o.Dst)
	}
	c.address("src", o.Src)
	c.address("gw", o.GW)
	c.required("dev", o.Dev)
	c.oneOf("table", o.Table, "default", "cnf")
}

func (c *checker) routeRule(o *RouteRule) {
	c.network("src", o.Src)
	c.network("dst", o.Dst)
	c.number("prio", o.Prio, 1, MaxPriority)
	if o.FwMark != "" {
		if m, err := ParseMark(o.FwMark); err != nil {
			c.add("fwmark", "%v", err)
		} else if m.Value == 0 {
			c.add("fwmark", "%s matches every packet: use a mark that is not 0, or leave it out", quote(o.FwMark))
		}
	}
	if _, err := strconv.ParseUint(o.Table, 10, 32); err != nil {
		c.oneOf("table", o.Table, "main", "local", "default", "cnf")
	}
}

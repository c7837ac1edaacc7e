package rest

import (
	"math"
	"strconv"
	"strings"
)

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
	c.number("prio", o.Prio, 0, math.MaxUint32)
	if o.FwMark != "" {
		if _, err := strconv.ParseUint(strings.TrimPrefix(o.FwMark, "0x"), 16, 32); err != nil {
			c.add("fwmark", "%s is not a hexadecimal number such as 0x10", quote(o.FwMark))
		}
	}
	if _, err := strconv.ParseUint(o.Table, 10, 32); err != nil {
		c.oneOf("table", o.Table, "main", "local", "default", "cnf")
	}
}

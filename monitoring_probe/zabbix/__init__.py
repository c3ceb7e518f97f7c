"""Zabbix's two doors: the trapper that takes values, the web API that makes hosts."""

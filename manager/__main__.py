from penstock.manager.main import run

run()
